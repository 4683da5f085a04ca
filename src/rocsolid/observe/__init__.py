"""Watches compiles and graph breaks."""
