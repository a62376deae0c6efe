"""How a config names packages of Python."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

_CREDENTIALS = re.compile(r"://[^/\s@]+@")


def _several(value: Any) -> Any:
    """`packages: trl==1.16` is a common way to write `[trl==1.16]`."""
    return (value,) if isinstance(value, str) else value


def _checked(packages: tuple[str, ...]) -> tuple[str, ...]:
    for one in packages:
        if one.startswith("-") or not one.strip():
            raise ValueError(
                f"{one!r} is no package; options of pip belong into a file that `requirements`"
                " names"
            )
        if _CREDENTIALS.search(one):
            raise ValueError(
                "a URL here has a user name or a password, and this file is kept in the run's"
                " record; set PIP_INDEX_URL or PIP_EXTRA_INDEX_URL in the cluster's environment"
            )
    return packages


Packages = Annotated[tuple[str, ...], BeforeValidator(_several), AfterValidator(_checked)]
