"""Graph passes: rewrites of the graph that torch.compile compiles."""
