"""The score config: what is scored, with which model, how, and where the result goes."""
