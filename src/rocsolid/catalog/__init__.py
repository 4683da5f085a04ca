"""The catalogue: every setting, profile and known problem, declared once with its reason and evidence."""
