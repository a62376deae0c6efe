"""What `llmops bench score` measured: the figures, what they cost for N rows, and the picture."""
