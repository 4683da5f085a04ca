"""The experiments of measure_facts.py, by subject."""
