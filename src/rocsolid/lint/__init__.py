"""Finds hazards in source code without running it."""
