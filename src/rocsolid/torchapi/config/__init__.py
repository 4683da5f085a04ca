"""Torch's config modules: reading, scoping, pinning and watching their entries."""
