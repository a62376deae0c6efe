"""README's animated picture, made from a real session in JupyterLab."""
