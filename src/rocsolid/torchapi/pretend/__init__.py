"""Make this process believe that it has an accelerator that is not here."""
