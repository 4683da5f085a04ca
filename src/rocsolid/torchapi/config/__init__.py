"""Torch's config modules: read, scoped, pinned, watched."""
