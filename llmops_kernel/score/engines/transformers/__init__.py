"""The engine on Transformers."""
