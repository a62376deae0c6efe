"""A stand-in for a Kubernetes cluster: its API server, operator and nodes; tests against it."""
