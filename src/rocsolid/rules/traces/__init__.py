"""Hazards in a trace: time that could be saved, and parts that cannot be trusted."""
