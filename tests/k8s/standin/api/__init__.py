"""The API server: from a request to its answer."""
