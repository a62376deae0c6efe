"""What generates answers, behind one protocol: vLLM, Transformers."""
