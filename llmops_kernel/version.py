"""The version of this package; a file of its own, so that every layer can import it."""

VERSION = "0.1.0"
"""The only place to change it: pyproject.toml reads it, `make version` copies it to `extension`."""

SUPPORTED_RAY = "2.60.0"
"""The Ray release that pyproject.toml pins and that the tests run on."""
