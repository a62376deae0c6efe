"""Our YAML: PyYAML's safe one with the readings that people expect of numbers and dates.

`1e-4` is a number (YAML 1.1 wants `1.0e-4`), `010` and `12:30:00` are not sums in base 8 and
60, and a date stays the text that was written. Reading and writing use the same rules, so that
what we write reads back the same.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_FLOAT = re.compile(
    r"""^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?
       |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
       |[-+]?\.(?:inf|Inf|INF)
       |\.(?:nan|NaN|NAN))$""",
    re.X,
)
_INT = re.compile(r"^(?:[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+)$")
_MOST_BRACKETS = 100  # within each other; configs have a few
_REPLACED = {
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:timestamp",
}


def _resolvers() -> dict[str, list[tuple[str, Any]]]:
    kept = {
        first: [(tag, pattern) for tag, pattern in pairs if tag not in _REPLACED]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for first in "-+0123456789.":
        kept.setdefault(first, []).append(("tag:yaml.org,2002:float", _FLOAT))
        kept[first].append(("tag:yaml.org,2002:int", _INT))
    return kept


class Loader(yaml.SafeLoader):
    """Safe: makes plain values only. Raises RecursionError for more than 100 open brackets."""

    yaml_implicit_resolvers = _resolvers()

    def fetch_flow_collection_start(self, token_class: type[yaml.Token]) -> None:
        # PyYAML looks at all open brackets at each token: 10,000 take it seconds, 100,000 minutes.
        if self.flow_level >= _MOST_BRACKETS:
            raise RecursionError(f"more than {_MOST_BRACKETS} open brackets")
        super().fetch_flow_collection_start(token_class)


class Dumper(yaml.SafeDumper):
    """Quotes exactly the texts that `Loader` would read as something else."""

    yaml_implicit_resolvers = _resolvers()

    def ignore_aliases(self, data: Any) -> bool:  # repeat values: `&id001` means nothing to readers
        return True


def dump(data: Any) -> str:
    """Block style, keys in their order, long texts on one line."""
    text: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)
    return text


def parse_value(text: str) -> Any:
    """Return one value as YAML reads it. Raises yaml.YAMLError, or RecursionError if too deep."""
    return yaml.load(text, Loader=Loader)
