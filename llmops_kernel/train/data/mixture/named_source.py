"""Errors about rows say of which source they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llmops_kernel.errors import DataError, HookError


@contextmanager
def named_source(source: str) -> Iterator[None]:
    """Put the source before the message of a DataError or HookError that does not name it."""
    try:
        yield
    except (DataError, HookError) as error:
        if source in error.message:
            raise
        raise type(error)(f"{source}: {error.message}", remedy=error.remedy) from error
