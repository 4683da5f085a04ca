"""One trial in processes that may hang, crash and breed, none of which outlives it."""
