"""Reads source, never runs it."""
