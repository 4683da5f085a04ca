"""Computes times, gaps, launches and utilization from `TraceColumns`."""
