"""Graph breaks and recompiles recorded while a program compiled."""
