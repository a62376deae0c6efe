"""A chat with the model of a run, turn by turn."""
