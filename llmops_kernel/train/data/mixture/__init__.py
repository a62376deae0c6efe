"""Training rows of several sources, each with a weight."""
