"""`python -m llmops_kernel` is the `llmops` command."""

from __future__ import annotations

from llmops_kernel.cli.main import main

if __name__ == "__main__":
    main()
