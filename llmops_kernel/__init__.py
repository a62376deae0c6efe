"""The interactive loop of LLM training on Ray."""

from __future__ import annotations

__version__ = "0.1.0"
