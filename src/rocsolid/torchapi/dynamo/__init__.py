"""TorchDynamo's private API: compile hooks and events, compiled functions, saved traces."""
