"""One call from a model to its fast, verified form."""
