"""Compiles, captures and replays functions under a given plan."""
