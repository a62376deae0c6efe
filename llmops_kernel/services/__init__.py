"""Services shared by the Python API, the command line and the Jupyter server."""
