"""What a check of a config finds by using what it names, before a run exists."""
