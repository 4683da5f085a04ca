"""Hazards in source code, found by `rocsolid lint`."""
