"""Makes prompts of rows."""
