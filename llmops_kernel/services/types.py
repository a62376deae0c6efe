"""The types that services take and return, for callers that only name them."""

from __future__ import annotations

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.jobs.guard import Report as GuardReport
from llmops_kernel.jobs.history import Way as StopWay
from llmops_kernel.metrics.events import AnyEvent, EvalEvent, FailureEvent, ProfileEvent
from llmops_kernel.providers.capabilities import EditEffect, RightState
from llmops_kernel.providers.protocol import (
    ActionPreview,
    ClusterInfo,
    ClusterSize,
    EngineInfo,
    Progress,
)
from llmops_kernel.services.export_source import Export
from llmops_kernel.store.diff import RunDiff
from llmops_kernel.store.garbage import DeletionPreview
from llmops_kernel.store.journal.score_view import ChatAnswer
from llmops_kernel.store.journal.spans import PhaseSpan
from llmops_kernel.store.journal.summary import FigureValue
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.run_lines import printed_lines
from llmops_kernel.store.store import RunSummary

__all__ = [
    "ActionPreview",
    "AnyEvent",
    "ChatAnswer",
    "ClusterInfo",
    "ClusterSize",
    "DeletionPreview",
    "EditEffect",
    "EngineInfo",
    "EvalEvent",
    "Export",
    "FailureEvent",
    "FigureValue",
    "GuardReport",
    "PhaseSpan",
    "ProfileEvent",
    "Progress",
    "RightState",
    "RunDiff",
    "RunRecord",
    "RunSummary",
    "RunView",
    "StopWay",
    "TrainingConfig",
    "TrainingView",
    "printed_lines",
]
