"""Hazards in the machine, its packages and its known problems."""
