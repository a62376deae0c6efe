"""Support for the driver of a run of any kind on the cluster: journal, storage, stop, end."""
