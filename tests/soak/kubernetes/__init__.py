"""Soak of runs on Kubernetes whose API server, operator and kubelets are killed at random."""
