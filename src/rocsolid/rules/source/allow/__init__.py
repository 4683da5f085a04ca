"""Problems with `# rocsolid: allow[...]` comments."""
