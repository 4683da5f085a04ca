"""Builds the timeline and the flame graph for the HTML page, and writes files for Perfetto and Parquet."""
