"""What a trace shows that could be faster, or that cannot be trusted."""
