"""Makes vLLM's environment, and removes it."""

from llmops_kernel.score_env import path, ready
from llmops_kernel.services.score_env.make import make, remove

__all__ = ["make", "path", "ready", "remove"]
