"""Differences between runs, in few words: `lr 2e-3 · r 16` says more than an id."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from llmops_kernel.views.run_query.order import value_key
from llmops_kernel.views.run_query.row import CONFIG, Row, Value

MAX_PARTS = 4
"""Number of parts in a label; the table has a column for each difference."""
MAX_LABEL = 90
_MISSING = "–"
_SHORT = {
    "learning_rate": "lr",
    "lr_scheduler_type": "schedule",
    "weight_decay": "decay",
    "num_workers": "workers",
    "micro_batch_size": "micro batch",
    "global_batch_size": "batch",
    "num_epochs": "epochs",
    "max_steps": "steps",
    "lora_alpha": "alpha",
    "lora_dropout": "dropout",
    "warmup_steps": "warmup",
    "gradient_checkpointing": "checkpointing",
    "max_new_tokens": "new tokens",
}
_FIRST = (
    "model.id",
    "objective.type",
    "method.type",
    "optimizer.learning_rate",
    "method.r",
    "parallelism.strategy",
    "data.train",
    "training.global_batch_size",
    "parallelism.num_workers",
    "training.num_epochs",
    "training.max_steps",
)
"""Fields that users call a run by, if they differ; anything else comes behind by its path."""
_SPEAKS = frozenset(
    CONFIG + path for path in ("model.id", "objective.type", "method.type", "parallelism.strategy")
)
"""Values that say what they are without a name before them."""
_RANK = {CONFIG + path: number for number, path in enumerate(_FIRST)}
_LAST = ("output.", "report_to", "notes")
_OF_SECTION = re.compile(r"\.(id|type)$")
_SEED = re.compile(r"(?:^|[._])seed$")
_BESIDE = {"cluster": "on", "user": "by", "code": "code"}
"""Facts beside the config that may tell runs apart, used when no config value does."""


@dataclass(frozen=True)
class Difference:
    """A column whose values differ between the runs, with a short name for it."""

    key: str
    label: str
    num_values: int

    @property
    def path(self) -> str:
        return self.key.removeprefix(CONFIG)


def differences(rows: Sequence[Row], *, columns: Collection[str] | None = None) -> list[Difference]:
    """Return every config value that differs between the runs, what matters most first.

    A run that lacks a value which another one has differs as well. Only the columns in `columns`
    are looked at, if given.
    """
    counts = {key: number for key, number in _num_values(rows, columns).items() if number > 1}
    keys = sorted(counts, key=_rank)
    labels = short_labels([key.removeprefix(CONFIG) for key in keys])
    return [Difference(key, labels[key.removeprefix(CONFIG)], counts[key]) for key in keys]


def _num_values(rows: Sequence[Row], columns: Collection[str] | None) -> dict[str, int]:
    """Return how many different values each config column has; the missing one counts."""
    shapes: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        shapes[id(row.positions)].append(row)
    values_by_name: dict[str, set[object]] = defaultdict(set)
    present: Counter[str] = Counter()
    for members in shapes.values():
        for name, column in _columns(members, columns):
            if name.startswith(CONFIG) and name != f"{CONFIG}name":
                values_by_name[name] |= _values(column)
                present[name] += len(members)
    return {
        name: len(values | _absent(rows, present[name])) for name, values in values_by_name.items()
    }


def _columns(
    rows: Sequence[Row], columns: Collection[str] | None
) -> Iterator[tuple[str, Sequence[Value]]]:
    """Return the columns of rows that have the same names."""
    names = rows[0].positions
    if columns is None:
        # Whole columns are made much faster than values are read one by one.
        yield from zip(names, zip(*(row.values for row in rows), strict=True), strict=True)
        return
    for name in columns:
        if (position := names.get(name)) is not None:
            yield name, [row.values[position] for row in rows]


def _values(column: Sequence[Value]) -> set[object]:
    values: set[object] = set(column)
    # A set keeps only one of `True` and `1`.
    if (True in values or False in values) and any(isinstance(value, bool) for value in column):
        return {_marked(value) for value in column}
    return values


def _absent(rows: Sequence[Row], present: int) -> set[object]:
    return {None} if present < len(rows) else set()


def _marked(value: Value) -> object:
    """Return a key by which `True` and `1` differ, and `1` and `1.0` do not."""
    return (bool, value) if isinstance(value, bool) else value


def _rank(key: str) -> tuple[bool, int, str]:
    path = key.removeprefix(CONFIG)
    return (says_little(path), _RANK.get(key, len(_RANK)), path)


def says_little(path: str) -> bool:
    """Return whether a config field differs often and explains nothing: seeds, output places."""
    return path.startswith(_LAST) or _SEED.search(path) is not None


def is_seed(path: str) -> bool:
    return _SEED.search(path) is not None


def short_labels(paths: Sequence[str]) -> dict[str, str]:
    """Return the shortest end of each path that no other has, common words abbreviated.

    Of `model.id` that is `model`: `id` says nothing without its section.
    """
    labels: dict[str, str] = {}
    split = {path: _OF_SECTION.sub("", path).split(".") for path in paths}
    for path, parts in split.items():
        for size in range(1, len(parts) + 1):
            end = parts[-size:]
            if not any(
                other_path != path and other_parts[-size:] == end
                for other_path, other_parts in split.items()
            ):
                break
        else:
            end = path.split(".")
        end[-1] = _SHORT.get(end[-1], end[-1])
        labels[path] = ".".join(end)
    return labels


class Naming:
    """Names of runs, each computed when it is first needed.

    Made of all runs of their configs: a name then is the same whichever of them are shown.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._unique: dict[Value, Labels] = {}

    @cached_property
    def distinctions(self) -> dict[str, str]:
        """Return what distinguishes each run from the others of its config, by id."""
        texts: dict[str, str] = {}
        for members in self._families.values():
            # What differs in a family differs between all of them.
            texts |= family_distinctions(members, keys=self.differing)
        return texts

    def name(self, row: Row) -> str:
        """Return its title, or what it differs in from the others of its config, or that's name.

        Where several of a config have the same, the time of submission follows.
        """
        title, config = row.get("title"), row.get("name")
        if title:
            return str(title)
        if config not in self._unique:
            members = self._families[config]
            texts = {
                each.run_id: self.distinctions[each.run_id] or str(config or "") for each in members
            }
            self._unique[config] = Labels(texts, members)
        return self._unique[config][row.run_id] or row.run_id

    def config_beside(self, row: Row) -> str:
        """Return its config's name, to be read before its own; empty if that begins with it."""
        name, config = self.name(row), str(row.get("name") or "")
        return "" if f"{name}{SEPARATOR}".startswith(f"{config}{SEPARATOR}") else config

    def labels(self, rows: Sequence[Row]) -> Mapping[str, str]:
        """Return a name of each of these runs that no other of them has, by id.

        Its name, behind its config's where they are of several configs.
        """
        several = len({row.get("name") for row in rows}) > 1
        texts = {}
        for row in rows:
            name, config = self.name(row), self.config_beside(row) if several else ""
            is_said = not config or bool(row.get("title"))
            texts[row.run_id] = name if is_said else SEPARATOR.join([config, name])
        return Labels(texts, rows)

    @cached_property
    def differing(self) -> tuple[str, ...]:
        """Return keys of the config columns whose values differ, what matters most first."""
        return tuple(each.key for each in differences(self._rows))

    @property
    def has_families(self) -> bool:
        """Return whether the runs are of several configs."""
        return len(self._families) > 1

    @cached_property
    def _families(self) -> dict[Value, list[Row]]:
        families: dict[Value, list[Row]] = defaultdict(list)
        for row in self._rows:
            families[row.get("name")].append(row)
        return families


def labels(rows: Sequence[Row]) -> Mapping[str, str]:
    """Return a name of each run among the others, who are all that there are."""
    return Naming(rows).labels(rows)


def family_distinctions(
    rows: Sequence[Row], *, keys: Collection[str] | None = None
) -> dict[str, str]:
    """Return what each run differs in from the others of its config: `lr 2e-3 · r 16`.

    Empty where nothing that is known differs. Only the config columns in `keys` are looked at,
    if given.
    """
    if len(rows) < 2:
        return {row.run_id: "" for row in rows}
    parts = telling_differences(rows, columns=keys)
    columns = [_parts(each, [row.get(each.key) for row in rows]) for each in parts]
    lines = zip(*columns, strict=True) if columns else [()] * len(rows)
    return {
        row.run_id: SEPARATOR.join(filter(None, line))[:MAX_LABEL]
        for row, line in zip(rows, lines, strict=True)
    }


def _parts(difference: Difference, values: Sequence[Value]) -> list[str]:
    """Return each run's part of its words; texts are cut to what tells them apart."""
    tails = _tails({value for value in values if isinstance(value, str)})
    known_parts: dict[object, str] = {}  # Thousands of runs of a sweep have a few values.
    parts = []
    for value in values:
        marked = _marked(value)
        if marked not in known_parts:
            text = tails[value] if isinstance(value, str) else value_text(value)
            known_parts[marked] = _part(difference, text)
        parts.append(known_parts[marked])
    return parts


def _part(difference: Difference, text: str) -> str:
    if difference.key in _SPEAKS and text != _MISSING:
        return text
    return f"{difference.label} {text}".strip()


def telling_differences(
    rows: Sequence[Row], *, max_parts: int = MAX_PARTS, columns: Collection[str] | None = None
) -> list[Difference]:
    """Return at most `max_parts` differences, those that tell the most runs apart.

    Seeds and the like are among them only where runs are alike without; one may come beside.
    """
    every = differences(rows, columns=columns) or _beside(rows)
    candidates = [each for each in every if not says_little(each.path)]
    selected = (
        candidates
        if len(candidates) <= max_parts
        else _select_telling(rows, candidates, [], max_parts=max_parts)
    )
    rest = [each for each in every if says_little(each.path)]
    selected = _select_telling(rows, rest, selected, max_parts=max(max_parts, len(selected) + 1))
    return sorted(selected, key=every.index)


def _select_telling(
    rows: Sequence[Row],
    every: Sequence[Difference],
    selected: Sequence[Difference],
    *,
    max_parts: int,
) -> list[Difference]:
    """Return those chosen already and, as long as one tells more runs apart, further ones."""
    values = {
        each.key: [_marked(row.get(each.key)) for row in rows] for each in [*selected, *every]
    }
    result = list(selected)
    classes = list(zip(*(values[each.key] for each in selected), strict=True)) or [()] * len(rows)
    while every and len(result) < max_parts:
        # The first of those that split the runs into the most classes.
        best = max(every, key=lambda each: len(set(zip(classes, values[each.key], strict=True))))
        refined = [(*key, value) for key, value in zip(classes, values[best.key], strict=True)]
        if len(set(refined)) == len(set(classes)):
            break
        result.append(best)
        classes = refined
    return result


def _beside(rows: Sequence[Row]) -> list[Difference]:
    counts = {key: len({row.get(key) for row in rows}) for key in _BESIDE}
    return [Difference(key, _BESIDE[key], count) for key, count in counts.items() if count > 1]


def _tails(texts: Iterable[str]) -> dict[str, str]:
    """Shorten `data/menu-train.jsonl` to `menu-train.jsonl` unless another text ends like it."""
    tails = {text: text.rstrip("/").rsplit("/", 1)[-1] or text for text in texts}
    counts = Counter(tails.values())
    return {text: _cut(tail if counts[tail] == 1 else text) for text, tail in tails.items()}


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 40 else f"{text[:18]}…{text[-18:]}"


def value_text(value: Value) -> str:
    """Return `2e-3`, `16`, `true`, `q_proj, v_proj`; a dash for an unknown value."""
    if value is None:
        return _MISSING
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, tuple):
        return _cut(", ".join(value)) or "none"
    return _cut(str(value))


def number_text(value: float) -> str:
    """Return a number as one writes it: `2e-3`, `0.5`, `1.5e-4`, `1e6`; never rounded."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    if value != 0 and (abs(value) < 0.01 or abs(value) >= 1e6):
        mantissa, exponent = f"{value:.12e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.12g}"


# --- Unique names, made on demand: a table shows a few of thousands ---


SEPARATOR = " · "
"""Between the parts of a name."""


class Labels(Mapping[str, str]):
    """A text of each run, by id; to those that several have, the time of submission is added.

    And a number, if the time is the same too.
    """

    def __init__(self, texts: Mapping[str, str], rows: Sequence[Row]) -> None:
        self._texts = texts
        self._counts = Counter(texts.values())
        self._same: dict[str, list[Row]] = {}
        for row in rows:
            text = texts[row.run_id]
            if self._counts[text] > 1:
                self._same.setdefault(text, []).append(row)
        self._form = _form(
            [_created(row) for rows_of_text in self._same.values() for row in rows_of_text]
        )
        self._told_apart: dict[str, dict[str, str]] = {}

    def __getitem__(self, run_id: str) -> str:
        text = self._texts[run_id]
        if self._counts[text] == 1:
            return text
        if text not in self._told_apart:
            self._told_apart[text] = self._disambiguated(text, self._same[text])
        return self._told_apart[text][run_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def _disambiguated(self, text: str, rows: Sequence[Row]) -> dict[str, str]:
        """Return names of runs that have the same text."""
        names = {
            row.run_id: f"{text}{SEPARATOR}{time.strftime(self._form, _local(_created(row)))}"
            for row in rows
        }
        repeats, counts = Counter(names.values()), Counter[str]()
        shared = [
            run_id for run_id, name in names.items() if repeats[name] + self._counts[name] > 1
        ]
        for run_id in sorted(shared, key=value_key):
            name = names[run_id]
            counts[name] += 1
            names[run_id] = f"{name} #{counts[name]}"
        return names


def _form(moments: Sequence[float]) -> str:
    """Return how times are written: with the date if they are of several days."""
    days = {_local(moment)[:3] for moment in (min(moments, default=0), max(moments, default=0))}
    return "%H:%M:%S" if len(days) == 1 else "%d %b %H:%M:%S"


def _created(row: Row) -> float:
    created = row.get("created")
    return created if isinstance(created, int | float) else 0.0


def _local(seconds: float) -> time.struct_time:
    try:
        return time.localtime(seconds)
    except (OverflowError, OSError, ValueError):
        return time.localtime(0)
