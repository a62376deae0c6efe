"""Example configs with their data: what `llmops init --example` writes."""
