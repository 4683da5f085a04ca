"""Protects a program nobody may edit: in its own process and in every Python it starts."""
