"""Timing done right: device events, interleaving, intervals, verdicts."""
