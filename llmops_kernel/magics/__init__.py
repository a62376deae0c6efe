"""`%load_ext llmops_kernel`: the magics `%%train` and `%llmops` of a notebook."""
