"""Metrics of scored rows: per row, summed per part, and over the whole table."""
