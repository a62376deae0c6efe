"""A stand-in for a Kubernetes cluster: API server, operator, scheduler, kubelets and Kueue."""
