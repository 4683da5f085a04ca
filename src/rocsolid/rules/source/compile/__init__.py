"""What goes wrong around torch.compile and its settings."""
