"""Engines that generate answers, behind one protocol: vLLM, Transformers."""
