"""The formats of tables, one file for each kind: how it is divided, how a part is read."""
