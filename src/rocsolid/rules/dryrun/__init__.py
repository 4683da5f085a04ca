"""Hazards that a dry run shows: what a model will meet on a chip that is not here."""
