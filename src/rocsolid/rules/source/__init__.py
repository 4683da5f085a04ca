"""Hazards that can be read from source, before anything runs."""
