"""Hazards in calls of torch.compile and in changes of compiler settings."""
