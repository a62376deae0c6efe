"""The `llmops` command: each command is a thin wrapper over one library call."""
