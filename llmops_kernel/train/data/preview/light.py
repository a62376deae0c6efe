"""Imports the tokenizer's library without torch: a second instead of four."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from llmops_kernel.errors import HookError

_LIBRARY: Final = "transformers"
_OURS = ("llmops_kernel.train.data.preview.work", "llmops_kernel.train.data.check.work")
_ahead: dict[str, ModuleType] = {}
"""Modules of the library that are imported and hidden."""


def needs_torch(error: HookError) -> bool:
    """Return whether hooks failed for want of torch, which Transformers' models need."""
    return "torch" in error.message.lower()


def import_ahead() -> None:
    """Import what most jobs need. Hooks find a process in which nobody has imported the library.

    So hooks that import it get all of it, with torch, and only others get what is imported here.
    """
    if _ahead or _LIBRARY in sys.modules:
        return
    with suppress(ImportError):
        with _no_torch():
            import_models()
            import_module(_LIBRARY).AutoTokenizer  # noqa: B018  # imported when it is named
            import_module(f"{_LIBRARY}.tokenization_utils_tokenizers")
        for name in [one for one in sys.modules if one.split(".")[0] == _LIBRARY]:
            _ahead[name] = sys.modules.pop(name)
    for name in (*_OURS, "pyarrow.parquet"):
        import_module(name)


@contextmanager
def without_torch() -> Iterator[None]:
    """Inside, torch cannot be imported; Transformers then loads tokenizers alone, also afterwards.

    Does nothing where hooks have imported either.
    """
    if sys.modules.keys() & {"torch", _LIBRARY}:
        yield
        return
    sys.modules.update(_ahead)
    with _no_torch():
        yield


@contextmanager
def _no_torch() -> Iterator[None]:
    sys.modules["torch"] = None  # type: ignore[assignment]  # what Python calls a blocked import
    try:
        yield
    finally:
        del sys.modules["torch"]


# --- Imports Transformers' list of models with one look at its folders instead of two ---
# Uses a private function, seen in Transformers 5.23.0: `import transformers` reads the 1,650
# files of its models, and `transformers.models` reads them again. Where the function is missing
# or keeps no results, all is imported as usual, a quarter of a second later.


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
