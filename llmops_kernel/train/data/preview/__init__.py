"""Preview of a config's data before a run, by the code that the workers use."""
