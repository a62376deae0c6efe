"""Real servers of S3, Google Cloud Storage and Azure on this machine; `make stores`."""
