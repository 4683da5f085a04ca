"""Compares variants in fresh processes."""
