"""Side by side: what torch offers and what rocsolid makes of the same models. Needs torchvision and transformers for most."""
