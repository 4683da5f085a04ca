"""Hazards reported while a program runs."""
