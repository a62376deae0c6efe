"""What the model will see of a config's data, found before a run: the code that the workers use."""
