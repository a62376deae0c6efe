"""Notebook views of runs: a live anywidget panel and its static fall-backs."""
