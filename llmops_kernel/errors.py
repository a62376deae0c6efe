"""Every error a user can meet.

* LLMOpsError
  * ConfigError             a config file, an override or a template is wrong
  * WorkspaceError          the workspace cannot be uploaded (too large, unreadable)
  * ClusterError
    + ClusterNotFoundError
    + ClusterDeadError      it was running and died
    + ClusterStartError     it did not start
    + ClusterUnreachableError
    + ClusterStateError     the action is not possible in the cluster's state
    + HistoryError          runs on it would lose lines of their journals
  * RunError
    + RunNotFoundError
    + RunFailedError        what `run.wait()` raises for a run that ended FAILED
    + RunStateError         the action is not possible in the run's state
    + SubmissionError       Ray refused the job
    + ExportError           a run's result cannot be handed over
  * TrackerError            a tracker cannot be reached or used
  * ScheduleError           a schedule is unknown, or what it names cannot be run
  * QueryError              a filter, an order or a column of a list of runs is wrong
  * StoreError              the run store cannot be read or written (disk full)
  * TrainingError           raised on a worker
    + DataError             a data source is missing, empty or broken (with the row)
    + ModelError            a model cannot be loaded
    + HookError             the user's hook raised
    + DivergedError         the loss or the gradient is NaN or infinite
  * AgentError              an agent may not do that, or its budget is used up
  * MissingDependencyError  an optional package is not installed
"""

from __future__ import annotations

import re
from typing import Any

_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def inert(text: str) -> str:
    r"""Return a text that acts on no terminal: control characters as their pictures (`␛` for ESC).

    Escape sequences could write to the clipboard (OSC 52), hide an address behind another (OSC 8)
    or clear the screen; marks of direction show a text in another order than it has. Lines and
    tabs stay. Each character is replaced by one, so that positions in the text hold.
    """
    return _ACTING.sub(lambda found: _picture(ord(found[0])), text)


def _picture(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "\N{REPLACEMENT CHARACTER}"


class LLMOpsError(Exception):
    """`message` says what happened in one line, `remedy` what to do next."""

    status = 500

    def __init__(self, message: str, *, remedy: str = "") -> None:
        # One signature for the whole tree keeps every subclass picklable:
        # Ray sends these across processes.
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints and what agents get in place of an answer."""
        problems = [problem.to_dict() for problem in getattr(self, "problems", ())]
        answer = {"kind": type(self).__name__, "message": self.message, "remedy": self.remedy}
        return {"error": {**answer, "problems": problems}}

    def __str__(self) -> str:
        return inert(f"{self.message}\n  Try: {self.remedy}" if self.remedy else self.message)


class ConfigError(LLMOpsError):
    """A config file, an override or a cluster template is wrong."""

    status = 422
    problems: tuple[Any, ...] = ()
    """Each mistake as a `llmops_kernel.config.problems.Problem`."""


class TrackerError(LLMOpsError):
    """A tracker cannot be reached, or lacks a setting."""

    status = 502


class ScheduleError(LLMOpsError):
    """A schedule is unknown, or the revision or file that it names cannot be run."""

    status = 422


class QueryError(LLMOpsError):
    """A filter, an order or a column that a list of runs cannot use."""

    status = 422
    position: int | None = None
    """The character of the text that is wrong, from 0; None where it is not one place."""


class WorkspaceError(LLMOpsError):
    """The workspace folder cannot be uploaded with a submission."""

    status = 422


class ClusterError(LLMOpsError):
    """A cluster could not be created, reached or deleted."""


class ClusterNotFoundError(ClusterError):
    """No cluster has that name."""

    status = 404


class ClusterDeadError(ClusterError):
    """The cluster was up and is dead now."""

    status = 410


class ClusterStartError(ClusterError):
    """The cluster did not start."""

    status = 504


class ClusterUnreachableError(ClusterError):
    """The cluster's dashboard does not answer."""

    status = 503


class ClusterStateError(ClusterError):
    """The action is not possible in the state of the cluster."""

    status = 409


class HistoryError(ClusterError):
    """The journals and logs of runs cannot be archived before their cluster is deleted."""

    status = 409


class RunError(LLMOpsError):
    """Something about a run."""


class RunNotFoundError(RunError):
    """No run has that id."""

    status = 404


class RunFailedError(RunError):
    """The run ended FAILED."""


class RunStateError(RunError):
    """The action is not possible in the state of the run."""

    status = 409


class ComparisonError(RunError):
    """The named runs cannot be compared."""

    status = 422


class SubmissionError(RunError):
    """Ray refused or could not start the job."""


class ExportError(RunError):
    """The result of a run cannot be handed over to serving."""

    status = 422


class StoreError(LLMOpsError):
    """The run store cannot be read or written."""


class TrainingError(LLMOpsError):
    """Raised on a worker while a run is being prepared or trained, or by a preview of its data."""

    status = 422


class DataError(TrainingError):
    """A data source is missing, empty or broken."""


class ModelError(TrainingError):
    """A model or tokenizer cannot be loaded."""


class HookError(TrainingError):
    """The user's hook raised or returned something unusable."""


class DivergedError(TrainingError):
    """The loss or the gradient is NaN or infinite."""


class AgentError(LLMOpsError):
    """An agent may not do that, or its budget is used up."""

    status = 403


class MissingDependencyError(LLMOpsError):
    """An optional package is not installed."""
