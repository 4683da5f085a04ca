"""Hazards of the machine: installed packages, drivers, limits, known problems, failed active checks."""
