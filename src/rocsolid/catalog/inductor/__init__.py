"""Settings of TorchInductor, named as in `torch/_inductor/config.py`. Defaults are read from torch, not repeated here."""

from rocsolid.catalog.inductor import autotune, caches, fusion, graphs, recent

SETTINGS = (*autotune.SETTINGS, *graphs.SETTINGS, *fusion.SETTINGS, *caches.SETTINGS, *recent.SETTINGS)
