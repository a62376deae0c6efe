"""`llmops data`: what the model will see of a config's data."""
