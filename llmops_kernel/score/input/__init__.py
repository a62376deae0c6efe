"""Reads the table: files, parts of rows, prompts."""
