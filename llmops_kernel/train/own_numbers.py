"""`track.log` in the hooks of a training config; the training loop reports all else itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.track import session
from llmops_kernel.track.tracker import OF_STEP, Logged, Number


class OwnNumbers:
    """Keeps what rank 0 logs until the step that takes it; what other ranks log is not reported.

    A hook runs on every worker with that worker's rows: a number that is to be of all workers
    must be reduced by the hook, as in a script.
    """

    def __init__(self, *, is_main: bool, warn: Callable[[WarningEvent], None]) -> None:
        self._is_main = is_main
        self._warn = warn
        self._logged = Logged()
        self._warned: set[str] = set()

    def take(self) -> dict[str, float]:
        """Return the numbers since the step before and forget them."""
        return self._logged.take()

    def log(self, numbers: Mapping[str, Number]) -> None:
        if not self._is_main:
            return
        own_numbers = {name: value for name, value in numbers.items() if name not in OF_STEP}
        problems = [
            f"track.log cannot set {name} in a hook: the training loop reports it itself."
            for name in numbers.keys() & OF_STEP
        ]
        for problem in [*problems, *self._logged.add(own_numbers)]:
            self._warn_once(problem, "give track.log numbers, by names of your own")

    def start(self, *_: Any, **__: Any) -> None:
        self._has_no_effect("start")

    def step(self, *_: Any, **__: Any) -> None:
        self._has_no_effect("step")

    def evaluation(self, *_: Any, **__: Any) -> None:
        self._has_no_effect("evaluation")

    def checkpoint(self, *_: Any, **__: Any) -> None:
        self._has_no_effect("checkpoint")

    def resume_checkpoint(self) -> None:
        """Return None: the loop has resumed already."""

    def should_stop(self, *_: Any, **__: Any) -> bool:
        """Return False: the loop stops all workers itself."""
        return False

    def _has_no_effect(self, name: str) -> None:
        self._warn_once(
            f"track.{name} has no effect in a hook: the training loop reports this itself.",
            "remove the call, or log numbers of your own with track.log",
        )

    def _warn_once(self, message: str, remedy: str) -> None:
        if self._is_main and message not in self._warned:
            self._warned.add(message)
            self._warn(WarningEvent(message=message, remedy=remedy))


@contextmanager
def own_numbers(*, is_main: bool, warn: Callable[[WarningEvent], None]) -> Iterator[OwnNumbers]:
    """Take this process's `track.log` calls while the block runs."""
    numbers = OwnNumbers(is_main=is_main, warn=warn)
    session.use(numbers)
    try:
        yield numbers
    finally:
        # A warm worker process serves the next run, maybe one of another kind.
        session.forget()
