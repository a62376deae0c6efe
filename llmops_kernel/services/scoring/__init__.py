"""Reads and compares scored tables on this machine."""
