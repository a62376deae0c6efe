"""The code that runs on the cluster: the driver, the worker loop and its parts."""
