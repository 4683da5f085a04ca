"""Runs a program under protection without changing its code: in its own process and in every Python process that it starts."""
