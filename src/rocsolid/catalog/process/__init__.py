"""Environment variables that libraries read when they start; each file is one reader.

A choice of `None` means: not set.
"""

from rocsolid.catalog.process import allocator, hip, libraries, torch, triton

SETTINGS = (*torch.SETTINGS, *allocator.SETTINGS, *hip.SETTINGS, *triton.SETTINGS, *libraries.SETTINGS)
