"""The `llmops` command."""
