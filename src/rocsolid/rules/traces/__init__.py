"""Rules about traces: time that could be saved, and numbers that may be wrong."""
