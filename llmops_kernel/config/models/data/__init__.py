"""Training rows: one source, or several with weights."""
