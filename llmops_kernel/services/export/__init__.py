"""`llmops export`: hands the result of a run over to serving."""
