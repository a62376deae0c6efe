"""What the driver of a run of any kind needs on the cluster: journal, storage, stop, end."""
