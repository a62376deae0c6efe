"""Questions in SQL to the journals of all runs."""
