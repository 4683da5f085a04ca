"""Hazards of custom operators in compiled or captured code."""
