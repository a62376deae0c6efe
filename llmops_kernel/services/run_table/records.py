"""What the table needs of run records, kept in the store's index: records never change."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from llmops_kernel.errors import RunNotFoundError, StoreError
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.run_query.row import Value, record_values

_VERSION = 2
"""Counts up when `record_values` returns something else: earlier texts are read again."""


class RecordValues(NamedTuple):
    config: dict[str, Value]
    facts: dict[str, Value]


def read_records(store: RunStore, run_ids: Iterable[str]) -> dict[str, RecordValues]:
    """Return what the records of these runs say; a broken one is left out."""
    wanted = list(run_ids)
    kept = store.index.texts() if wanted else {}
    found, new = {}, {}
    for run_id in wanted:
        values = _parsed(kept.get(run_id))
        if values is None:
            try:
                values = RecordValues(*record_values(store.record(run_id)))
            except (StoreError, RunNotFoundError):
                continue
            new[run_id] = _text(values)
        found[run_id] = values
    store.index.put_texts(new)
    return found


def _text(values: RecordValues) -> str:
    parts = (values.config, values.facts)
    lists = [each for part in parts for each in ("\n".join(part), list(part.values()))]
    return json.dumps([_VERSION, *lists], separators=(",", ":"))


def _parsed(text: str | None) -> RecordValues | None:
    """Return what `_text` wrote; None for anything else, such as another version's."""
    if text is None:
        return None
    try:
        version, config_names, config, fact_names, facts = json.loads(text)
        if version != _VERSION:
            return None
        return RecordValues(_named(config_names, config), _named(fact_names, facts))
    except (ValueError, TypeError, AttributeError):
        return None


def _named(names: str, values: list[Any]) -> dict[str, Value]:
    return dict(zip(_split(names), [_SHARE[type(value)](value) for value in values], strict=True))


@lru_cache(maxsize=2_000)
def _split(names: str) -> tuple[str, ...]:
    """Names repeat from run to run: each is in memory once."""
    return tuple(map(sys.intern, names.split("\n"))) if names else ()


def _same(value: Any) -> Any:
    return value


_SHARE: defaultdict[type, Callable[[Any], Value]] = defaultdict(
    lambda: _same, {str: sys.intern, list: tuple}
)
"""What keeps a value small: texts repeat from run to run as well."""
