"""Hazards in the environment variables of the process."""
