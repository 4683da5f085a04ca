"""Hazards in the compiler settings: which values differ from the release, and what changed them."""
