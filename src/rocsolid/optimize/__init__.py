"""`rs.optimize`: finds the fastest form of a model with correct results."""
