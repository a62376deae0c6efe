"""Numbers that a script reports by names of its own, until the next step takes them along."""

from __future__ import annotations

import re
from collections.abc import Mapping

from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.track.steps import Number, number

MAX_NAMES = 50
"""Each name is a chart; more of them are a mistake, such as a name with the step in it."""
OF_STEP = frozenset({"loss", "learning_rate", "grad_norm", "epoch", "data_wait_s"})
"""Names that a step has itself: `track.log(loss=...)` is `track.step(loss=...)`."""
_RESERVED = frozenset(StepEvent.model_fields) - OF_STEP - {"stands_for"}
_NOT_IN_NAMES = re.compile(r"[^\w ./()%@:-]+", re.ASCII)


class Logged:
    """The numbers since the last step."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._values: dict[str, float] = {}

    def add(self, numbers: Mapping[str, Number]) -> list[str]:
        """Keep the numbers; return why some were left out, as sentences."""
        problems = []
        for given, value in numbers.items():
            name = _NOT_IN_NAMES.sub("_", str(given))
            try:
                known = number(value)
            except (TypeError, ValueError, RuntimeError):
                problems.append(f"track.log takes numbers; {name} is a {type(value).__name__}.")
                continue
            if name in _RESERVED:
                problems.append(f"track.log cannot set {name}: the run measures it itself.")
            elif len(self._names | {name}) > MAX_NAMES:
                problems.append(f"track.log takes {MAX_NAMES} names; further ones are left out.")
            elif known is not None:
                self._names.add(name)
                self._values[name] = known
        return problems

    def take(self) -> dict[str, float]:
        """Return the numbers and forget them."""
        values, self._values = self._values, {}
        return values
