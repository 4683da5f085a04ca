"""Settings of TorchInductor, named as `torch/_inductor/config.py` names them; defaults are read, never repeated."""

from rocsolid.catalog.inductor import autotune, caches, fusion, graphs

SETTINGS = (*autotune.SETTINGS, *graphs.SETTINGS, *fusion.SETTINGS, *caches.SETTINGS)
