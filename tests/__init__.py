"""A package of its own, because draccus, which lerobot needs, installs one with the same name."""
