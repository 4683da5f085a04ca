"""Records what torch.compile does: compiled graphs, recompiles and graph breaks."""
