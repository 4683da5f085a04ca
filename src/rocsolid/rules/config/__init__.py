"""Hazards in the compiler's settings."""
