"""Writes scored rows: Parquet parts and the ledger of finished parts."""
