"""Logs, port-forward and the service proxy: connections to what runs behind a pod."""
