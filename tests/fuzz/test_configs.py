"""Any text as a config: a valid config or an error with its remedy, soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from llmops_kernel.config.reading.document import parse_yaml
from llmops_kernel.config.reading.templates import template_from
from llmops_kernel.errors import ConfigError
from llmops_kernel.kinds.reading import file_kinds, from_text, from_values
from llmops_kernel.kinds.registry import kind_named
from tests.fuzz.examples import examples, json_values, mutated, words

TEMPLATES = {name: kind.template() for name, kind in file_kinds().items()}
LIMIT_S = 30.0
"""For a text of some kilobytes, on a machine that does other things too."""


def texts() -> st.SearchStrategy[str]:
    def dumped(values: dict[str, Any]) -> str:
        return yaml.safe_dump(values, allow_unicode=True)

    keys = st.sampled_from(sorted({line.split(":")[0] for line in _lines()})) | words()
    data = st.dictionaries(keys, json_values(), max_size=6).map(dumped)
    return mutated(tuple(TEMPLATES.values())) | data | words()


def _lines() -> list[str]:
    return [line for text in TEMPLATES.values() for line in text.splitlines() if ":" in line]


def check(read: Callable[..., object], *given: Any, **more: Any) -> None:
    began_s = time.monotonic()
    mistake = None
    try:
        read(*given, **more)
    except ConfigError as error:
        mistake = error
    except Exception as error:
        raise AssertionError(f"{error!r} for {given!r}") from error
    assert time.monotonic() - began_s < LIMIT_S, repr(given)
    if mistake is not None:
        assert mistake.message, repr(given)
        assert mistake.remedy or all(map(str, mistake.problems)), repr(given)
        assert str(mistake).encode(errors="replace")


def read_template(text: str) -> object:
    return template_from(parse_yaml(text, file="x"))


def test_any_text_is_a_config_or_a_reported_mistake(tmp_path: Path) -> None:
    runs = [kind_named(name) for name in TEMPLATES if name != "cluster"]
    for text in examples(texts(), 400):
        for kind in runs:
            check(from_text, kind, text, name="x", workspace=tmp_path)
        check(read_template, text)


def test_any_values_and_overrides_are_too(tmp_path: Path) -> None:
    pairs = st.tuples(
        st.dictionaries(words(), json_values(), max_size=4),
        st.lists(mutated(("optimizer.learning_rate=1e-4", "seed=1", "data.train=x")), max_size=2),
    )
    for values, overrides in examples(pairs, 250):
        for name in TEMPLATES:
            if name != "cluster":
                check(from_values, kind_named(name), values, overrides, workspace=tmp_path)
