"""Whether what a config names can be used, found before a run: rows, hooks, tokenizer, hub ids."""
