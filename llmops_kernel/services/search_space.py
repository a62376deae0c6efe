"""The values that a sweep tries: lists and ranges of fields, and the trials made of them."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmops_kernel.config.problems import Problem, config_error
from llmops_kernel.config.reading.document import parse_value
from llmops_kernel.errors import MissingDependencyError

MOST_TRIALS = 1_000
_LOG = ":log"
_TRIES_EACH = 100
"""So often a random trial is drawn again that is there already."""
_OPEN, _CLOSE, _QUOTES = "([{", ")]}", "\"'"

Changes = dict[str, str]
"""Field -> value as a text, as an override of a config has it."""


@dataclass(frozen=True)
class Choice:
    """Values of a field; one value is the same for all trials."""

    field: str
    values: tuple[str, ...]

    def draw(self, noise: random.Random) -> str:
        return noise.choice(self.values)


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole ones if both are."""

    field: str
    low: float
    high: float
    is_log: bool = False
    is_whole: bool = False

    def draw(self, noise: random.Random) -> str:
        if self.is_log:
            value = math.exp(noise.uniform(math.log(self.low), math.log(self.high)))
            value = min(self.high, max(self.low, value))
        else:
            value = noise.uniform(self.low, self.high)
        if self.is_whole and not self.is_log:
            value = noise.randint(int(self.low), int(self.high))
        return self.text(value)

    def text(self, value: float) -> str:
        """Return a number of the range as a config has it."""
        return str(round(value)) if self.is_whole else f"{value:.4g}"


Axis = Choice | Range


@dataclass(frozen=True)
class Search:
    """How the values of a sweep become trials: all combinations, or so many of them."""

    words: tuple[str, ...]
    """Fields with values, as `axes_of_words` reads them."""
    random: int | None = None
    """So many random ones."""
    optuna: int | None = None
    """So many that Optuna proposes from what the earlier ones gave."""
    seed: int = 0

    def trials(self) -> list[Changes]:
        """Return the trials; of Optuna's the ones at the ends, to be checked.

        Raises ConfigError with all that is wrong with the words.
        """
        axes = axes_of_words(self.words)
        if self.optuna is not None:
            check_count(self.optuna if axes else 0)
            load_optuna()
            return _ends(axes)
        return grid(axes) if self.random is None else drawn(axes, self.random, seed=self.seed)


def _ends(axes: Sequence[Axis]) -> list[Changes]:
    """Return trials in which each value, and both ends of each range, is there at least once."""
    values = [
        axis.values if isinstance(axis, Choice) else (axis.text(axis.low), axis.text(axis.high))
        for axis in axes
    ]
    count = max(map(len, values))
    return [
        {axis.field: each[n % len(each)] for axis, each in zip(axes, values, strict=True)}
        for n in range(count)
    ]


def axes_of_words(words: Sequence[str]) -> tuple[Axis, ...]:
    """Read `method.r=8,16` and `optimizer.learning_rate=1e-5..1e-3:log`.

    Raises ConfigError with all mistakes at once.
    """
    problems: list[Problem] = []
    axes: list[Axis] = []
    for word in words:
        field, equals, text = word.partition("=")
        if not equals or not field.strip():
            hint = "write it as field=value,value, such as method.r=8,16"
            problems.append(Problem(path=word, message="is no field with values", suggestion=hint))
            continue
        read = _read(field.strip(), text.strip())
        if isinstance(read, Problem):
            problems.append(read)
        elif any(axis.field == read.field for axis in axes):
            hint = "give all of its values once, with commas between them"
            problems.append(Problem(path=read.field, message="is there twice", suggestion=hint))
        else:
            axes.append(read)
    if problems:
        raise config_error(problems)
    return tuple(axes)


def words_of(over: Mapping[str, Any]) -> tuple[str, ...]:
    """Return lists of values by field as `axes_of_words` reads them; a text is one already."""
    words = []
    for field, values in over.items():
        if isinstance(values, str):
            words.append(f"{field}={values}")
            continue
        each = values if isinstance(values, Sequence) else [values]
        words.append(f"{field}={','.join(json.dumps(value) for value in each)}")
    return tuple(words)


def _read(field: str, text: str) -> Axis | Problem:
    values = tuple(_split(text))
    if len(values) == 1 and ".." in values[0] and values[0][0] not in _OPEN + _QUOTES:
        return _range(field, values[0])
    if not all(values):
        message = "has an empty value" if text else "has no value"
        return Problem(path=field, message=message, value=text, suggestion="write values like 8,16")
    twice = next((value for n, value in enumerate(values) if value in values[:n]), None)
    if twice is not None:
        return Problem(
            path=field, message="has a value twice", value=twice, suggestion="leave one of them out"
        )
    return Choice(field, values)


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that are in no list, mapping or quotes."""
    depth, quote, begin = 0, "", 0
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == "," and depth == 0:
            yield text[begin:place].strip()
            begin = place + 1
    yield text[begin:].strip()


def _range(field: str, text: str) -> Range | Problem:
    bounds, is_log = text.removesuffix(_LOG), text.endswith(_LOG)
    low, high = (_number(part) for part in bounds.split("..", 1))
    hint = "write it like 1e-5..1e-3, 1e-5..1e-3:log or 4..64"
    if low is None or high is None:
        message = "is a range without a bound" if ".." in bounds else "is no range"
        return Problem(path=field, message=message, value=text, suggestion=hint)
    if low >= high:
        return Problem(
            path=field, message="is a range from high to low", value=text, suggestion=hint
        )
    if is_log and low <= 0:
        hint = "a logarithmic range begins above 0"
        return Problem(path=field, message="has no logarithm", value=text, suggestion=hint)
    return Range(field, low, high, is_log, isinstance(low, int) and isinstance(high, int))


def _number(text: str) -> float | None:
    value = parse_value(text.strip()) if text.strip() else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if math.isfinite(value) else None


def grid(axes: Sequence[Axis]) -> list[Changes]:
    """Return every combination. Raises ConfigError for a range, and for too many or no trials."""
    ranges = [axis for axis in axes if isinstance(axis, Range)]
    if ranges:
        hint = "list its values, or draw from it with --random N"
        raise config_error(
            [
                Problem(path=each.field, message="is a range, and a grid has none", suggestion=hint)
                for each in ranges
            ]
        )
    choices = [axis for axis in axes if isinstance(axis, Choice)]
    count = math.prod(len(choice.values) for choice in choices)
    check_count(count if choices else 0)
    fields = [choice.field for choice in choices]
    combinations = itertools.product(*(choice.values for choice in choices))
    return [dict(zip(fields, values, strict=True)) for values in combinations]


def drawn(axes: Sequence[Axis], count: int, *, seed: int) -> list[Changes]:
    """Return `count` different random combinations, the same ones for the same seed.

    Raises ConfigError if there are not so many.
    """
    check_count(count if axes else 0)
    noise = random.Random(seed)
    trials: dict[tuple[str, ...], Changes] = {}
    for _ in range(_TRIES_EACH * count):
        values = {axis.field: axis.draw(noise) for axis in axes}
        trials.setdefault(tuple(values.values()), values)
        if len(trials) == count:
            return list(trials.values())
    problem = Problem(
        path="--random",
        message=f"only {len(trials)} different trials were drawn",
        value=count,
        suggestion=f"ask for {len(trials)}, or give more values",
    )
    raise config_error([problem])


def check_count(count: int) -> None:
    """Raise ConfigError for no trials, or more than anybody means."""
    if count == 0:
        message, hint = (
            "there is nothing to try",
            "name a field: --over optimizer.learning_rate=1e-4,3e-4",
        )
    elif count > MOST_TRIALS:
        message = f"these are {count:,} trials, and a sweep has at most {MOST_TRIALS:,}"
        hint = "leave values out, or draw some with --random N"
    else:
        return
    raise config_error([Problem(path="", message=message, suggestion=hint)])


# --- Trials that Optuna proposes ---


def load_optuna() -> Any:
    """Return the package. Raises MissingDependencyError without it."""
    try:
        import optuna
    except ImportError:
        raise MissingDependencyError(
            "Trials that learn from earlier ones need the package optuna.",
            remedy="pip install optuna, or draw random ones with --random N",
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Proposals:
    """Optuna's tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011) and median pruner.

    It keeps nothing: a sweep that goes on tells it of all trials that have ended.
    """

    def __init__(self, search: Search, *, better: str, num_known: int) -> None:
        self._optuna = load_optuna()
        self._axes = axes_of_words(search.words)
        self._space = {axis.field: self._distribution(axis) for axis in self._axes}
        self._study = self._optuna.create_study(
            direction="minimize" if better == "lower" else "maximize",
            sampler=self._optuna.samplers.TPESampler(seed=search.seed + num_known),
            pruner=self._optuna.pruners.MedianPruner(),
        )
        self._running: dict[tuple[str, ...], Any] = {}
        self._reported: dict[tuple[str, ...], int] = {}
        self._seen: set[tuple[str, ...]] = set()

    def _distribution(self, axis: Axis) -> Any:
        kinds = self._optuna.distributions
        if isinstance(axis, Choice):
            return kinds.CategoricalDistribution(axis.values)
        if axis.is_whole:
            return kinds.IntDistribution(int(axis.low), int(axis.high), log=axis.is_log)
        return kinds.FloatDistribution(axis.low, axis.high, log=axis.is_log)

    def propose(self) -> Changes | None:
        """Return the next trial; None when nothing comes that was not tried before."""
        for _ in range(_TRIES_EACH):
            trial = self._study.ask(self._space)
            changes = {
                axis.field: str(trial.params[axis.field])
                if isinstance(axis, Choice)
                else axis.text(trial.params[axis.field])
                for axis in self._axes
            }
            key = tuple(changes.values())
            if key not in self._seen:
                self._seen.add(key)
                self._running[key] = trial
                return changes
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        return None

    def learn(self, changes: Mapping[str, str], *, state: str, value: float | None) -> None:
        """Tell it how a trial has ended, also one of an earlier process."""
        key = tuple(changes[axis.field] for axis in self._axes)
        states = self._optuna.trial.TrialState
        ended = {"SUCCEEDED": states.COMPLETE, "STOPPED": states.PRUNED}.get(state, states.FAIL)
        if value is None and ended is states.COMPLETE:
            ended = states.FAIL
        values = {"state": ended} | ({"values": [value]} if ended is states.COMPLETE else {})
        if key in self._running:
            self._study.tell(self._running.pop(key), **values)
            return
        self._seen.add(key)
        numbers = {
            axis.field: changes[axis.field]
            if isinstance(axis, Choice)
            else min(axis.high, max(axis.low, float(changes[axis.field])))
            for axis in self._axes
        }
        self._study.add_trial(
            self._optuna.trial.create_trial(params=numbers, distributions=self._space, **values)
        )

    def should_stop(
        self, changes: Mapping[str, str], curve: Sequence[tuple[int, float | None]]
    ) -> bool:
        """Report how a trial goes, by step; return whether others are better.

        That is when its best value so far is worse than their median at the same step.
        """
        key = tuple(changes[axis.field] for axis in self._axes)
        trial, last = self._running.get(key), self._reported.get(key, -1)
        new = [(step, value) for step, value in curve if step > last and value is not None]
        if trial is None or not new:
            return False
        for step, value in new:
            if math.isfinite(value):
                trial.report(value, step)
        self._reported[key] = new[-1][0]
        return bool(trial.should_prune())
