"""Decides whether the results of a form are right, and finds what makes them wrong."""
