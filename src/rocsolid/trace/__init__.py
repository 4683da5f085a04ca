"""Reads profiler files into columns (`readers`), analyzes them (`analysis`) and writes them for other tools (`export`)."""
