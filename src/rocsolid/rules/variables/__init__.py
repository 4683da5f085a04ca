"""Hazards in the environment of the process."""
