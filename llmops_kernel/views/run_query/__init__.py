"""Many runs as rows of named values: columns, filter, order, and what differs. Pure."""
