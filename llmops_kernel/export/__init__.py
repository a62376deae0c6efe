"""Writes the result of a run for serving: merged weights, vLLM, GGUF, Triton, a hub or a URL."""
