"""Environment variables, in one module per library that reads them.

A recommended value of `None` means that the variable should not be set.
"""

from rocsolid.catalog.process import allocator, hip, libraries, torch, triton

SETTINGS = (*torch.SETTINGS, *allocator.SETTINGS, *hip.SETTINGS, *triton.SETTINGS, *libraries.SETTINGS)
