"""Turns profiler files into columns, and columns into answers."""
