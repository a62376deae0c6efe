"""Submit, follow, stop and retry runs over the Ray Jobs REST API."""
