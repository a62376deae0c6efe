"""Results of `llmops bench score`: the figures, what they cost for N rows, and the picture."""
