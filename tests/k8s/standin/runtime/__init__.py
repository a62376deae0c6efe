"""What all controllers share: an API client with caches, events, quantities."""
