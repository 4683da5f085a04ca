"""Hazards that show while a program runs."""
