"""Checked models of every file a user writes: training configs and cluster templates."""
