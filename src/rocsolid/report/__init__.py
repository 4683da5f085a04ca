"""Writes for people and machines: text, JSON, SARIF, HTML."""
