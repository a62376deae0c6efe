"""Report to a run from the callbacks of Transformers and Lightning."""
