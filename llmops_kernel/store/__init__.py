"""Run records, workspace packages, journals and the store: what workers and notebooks share."""
