"""vLLM's own Python environment: where it is, and what is in it.

vLLM pins torch and transformers to other releases than training uses. Whoever starts an actor with
vLLM names `python()` as its `py_executable`. `llmops_kernel.services.score_env` makes it.
"""

from llmops_kernel.score_env.place import ENV_VAR, Part, is_missing, parts, path, python, ready

__all__ = ["ENV_VAR", "Part", "is_missing", "parts", "path", "python", "ready"]
