"""The documentation site: pages, and the scripts that write the reference from the code."""
