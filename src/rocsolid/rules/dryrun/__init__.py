"""Hazards that a dry run finds: what would go wrong on a GPU that is not in this machine."""
