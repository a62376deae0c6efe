"""Models on disk: the built-in catalogue and where a model id is found."""
