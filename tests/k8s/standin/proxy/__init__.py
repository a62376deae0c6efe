"""Logs and the service proxy: connections to what runs behind a pod."""
