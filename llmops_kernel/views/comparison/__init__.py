"""Several runs side by side as tables: results, samples, speed, start-up."""
