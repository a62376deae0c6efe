"""Stands before the package of this name in Ray's processes, and loads it when it is used.

`jsonschema` imports that package for one string format, Ray imports `jsonschema`, and the
package compiles a grammar while it is imported: 1.07 s of the 1.5 s that `import ray` takes,
in each of some seven processes of a head and in every worker. Nobody checks that format there.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any


def is_valid_syntax(term: str, value: str) -> bool:
    valid: bool = _real().is_valid_syntax(term, value)
    return valid


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_real(), name)


@cache
def _real() -> ModuleType:
    folder = Path(__file__).parent.resolve()
    elsewhere = [entry for entry in sys.path if Path(entry).resolve() != folder]
    spec = PathFinder.find_spec(__name__, elsewhere)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)
    module = module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)
    return module
