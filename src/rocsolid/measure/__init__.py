"""Loads what is to be measured, and times it right: device events, interleaving, intervals, verdicts."""
