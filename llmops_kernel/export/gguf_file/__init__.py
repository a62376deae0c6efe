"""Writes GGUF files for llama.cpp, by the `gguf` package."""
