"""Kueue: Workloads of queued RayClusters and their admission."""
