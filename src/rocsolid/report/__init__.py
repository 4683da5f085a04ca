"""Renders results as text, JSON, SARIF and HTML."""
