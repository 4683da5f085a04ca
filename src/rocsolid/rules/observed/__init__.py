"""What was seen while something compiled."""
