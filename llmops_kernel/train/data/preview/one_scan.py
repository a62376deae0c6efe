"""Imports Transformers' list of models with one look at its folders instead of two.

Uses a private function, seen in Transformers 5.23.0: `import transformers` reads the 1,650 files of
its models, and `transformers.models` reads them again. Where the function is missing or keeps no
results, all is imported as usual, a quarter of a second later.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_UTILS: Final = "transformers.utils.import_utils"
_READ: Final = "create_import_structure_from_path"


def import_models() -> None:
    """Import `transformers.models`."""
    utils = import_module(_UTILS)
    read = getattr(utils, _READ, None)
    if read is not None and hasattr(read, "cache_info"):
        setattr(utils, _READ, _with_result(read, Path(str(utils.__file__)).parents[1] / "models"))
    try:
        import_module("transformers.models")
    finally:
        if read is not None:
            setattr(utils, _READ, read)


def _with_result(read: Callable[[Any], Any], folder: Path) -> Callable[[Any], Any]:
    """Return `read` with the result for the folder, which it keeps, also under its file's name."""
    known = read(folder)
    same = folder / "__init__.py"
    return lambda path: known if Path(path) == same else read(path)
