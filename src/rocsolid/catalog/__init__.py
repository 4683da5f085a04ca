"""Every setting, profile and known problem, declared once with reason and evidence."""
