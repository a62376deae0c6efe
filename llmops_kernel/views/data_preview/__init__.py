"""A preview of data as sentences, plain text and HTML."""
