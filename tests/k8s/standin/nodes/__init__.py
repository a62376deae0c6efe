"""The scheduler and the arithmetic of nodes and quotas."""
