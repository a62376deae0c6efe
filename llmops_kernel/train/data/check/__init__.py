"""Check before a run that a config's rows, hooks, tokenizer and hub ids can be used."""
