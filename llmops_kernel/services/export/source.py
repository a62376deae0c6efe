"""Which files of a run are exported: its result, and the base model that it names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from llmops_kernel.config.models.sections import CATALOGUE
from llmops_kernel.errors import RunStateError
from llmops_kernel.hardware.precision import AUTO
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.store.export_job import ModelSource
from llmops_kernel.store.files import find
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.outputs.reported import check_reported
from llmops_kernel.store.record.record import Attempt, RunRecord

ADAPTER_FILE, MODEL_FILE = "adapter_config.json", "config.json"


@dataclass
class Problems:
    """What stands against an export, each with what to do about it."""

    found: list[tuple[str, str]] = field(default_factory=list)

    def add(self, message: str, remedy: str) -> None:
        self.found.append((message, remedy))


def find_source(
    record: RunRecord,
    view: RunView,
    *,
    attempts: Sequence[Attempt],
    base: str | None,
    problems: Problems,
) -> ModelSource | None:
    """Return the result and its base; adds to `problems` what is missing."""
    located = _result(record, view, problems)
    if located is None:
        return None
    location, what = located
    try:
        check_reported(location, record, attempts)
    except RunStateError as error:
        problems.add(error.message, error.remedy)
        return None
    model = _section(record.config, "model")
    written = next((one for one in reversed(view.outputs) if one.base), None)
    if written is not None:  # The run has trained the adapter further that its config names.
        model = {**model, "id": written.base, "revision": written.base_revision}
    named = base or str(model.get("id") or "") or _named_by_adapter(location)
    roots = (record.workspace_root,) if record.workspace_root else ()
    source = ModelSource(
        what=what,
        location=location,
        base=named,
        revision=model.get("revision"),
        trust_remote_code=bool(model.get("trust_remote_code")),
        roots=roots,
        compute_dtype=_compute_dtype(model, view),
    )
    if what == "adapter":
        _check_base(source, record, problems)
    return source


def _compute_dtype(model: Mapping[str, Any], view: RunView) -> Literal["float32", "bfloat16"]:
    """Return the number format that the run computed in; `auto` is what its start event says."""
    dtype = model.get("dtype")
    if dtype == AUTO:
        start = view.start if isinstance(view, TrainingView) else None
        dtype = start.dtype if start else None
    return "bfloat16" if dtype == "bfloat16" else "float32"


def base_folder(source: ModelSource, cache: Path) -> Path | None:
    """Return the base model's folder, if it is on this machine already."""
    if source.base in CATALOGUE:
        folder = cache / "models" / source.base
        return folder if folder.is_dir() else None
    return find(source.base, [Path(root) for root in source.roots]) if source.base else None


def _result(
    record: RunRecord, view: RunView, problems: Problems
) -> tuple[str, Literal["adapter", "model"]] | None:
    """Return where the result is and what it is. An adapter comes before its merged copy."""
    outputs = [one for one in view.outputs if one.what in ("adapter", "model")]
    if outputs:
        path = outputs[-1].path
        what: Literal["adapter", "model"] = "adapter" if outputs[-1].what == "adapter" else "model"
        if "://" not in path and _kind_of(Path(path)) is None:
            remedy = f"restore the folder, or train again: llmops resubmit {record.run_id}"
            problems.add(f"The result of run {record.run_id} is gone: {path}", remedy)
            return None
        return path, what
    if not _section(record.config, "method") and (found := _in_checkpoints(view)) is not None:
        return found  # A script's own: those of a training config cannot be served.
    problems.add(*_no_result(record, view))
    return None


def _in_checkpoints(view: RunView) -> tuple[str, Literal["adapter", "model"]] | None:
    """Return the newest checkpoint that is a PEFT adapter or a Transformers model."""
    for event in reversed(view.checkpoints):
        folder = Path(event.path)
        if "://" not in event.path and (kind := _kind_of(folder)) is not None:
            return str(folder), kind
    return None


def _no_result(record: RunRecord, view: RunView) -> tuple[str, str]:
    if "chat" not in kind_named(record.kind).actions:
        return (
            f"Run {record.run_id} is of kind {record.kind}, which makes no model.",
            "choose a run that does: llmops runs",
        )
    if view.checkpoints and not _section(record.config, "method"):
        return (
            f"Run {record.run_id} reported no checkpoint that is a PEFT adapter"
            f" ({ADAPTER_FILE}) or a Transformers model ({MODEL_FILE}).",
            "write one with model.save_pretrained(folder) and report it: track.checkpoint(folder)",
        )
    if view.is_terminal:
        return (
            f"Run {record.run_id} is {view.state} and has no result.",
            f"continue it: llmops retry {record.run_id}; a script reports its model's folder with"
            " track.checkpoint(folder)",
        )
    return (
        f"Run {record.run_id} is {view.state}: it has no result yet.",
        f"wait for its end: llmops wait {record.run_id}",
    )


def _kind_of(folder: Path) -> Literal["adapter", "model"] | None:
    if (folder / ADAPTER_FILE).exists():
        return "adapter"
    return "model" if (folder / MODEL_FILE).exists() else None


def _check_base(source: ModelSource, record: RunRecord, problems: Problems) -> None:
    if not source.base:
        if "://" not in source.location:
            message = f"Neither run {record.run_id} nor its adapter names the base model."
            problems.add(message, "name it: --base MODEL")
        return
    if source.base in CATALOGUE:
        return
    found = find(source.base, [Path(root) for root in source.roots])
    if found is not None:
        if not (found / MODEL_FILE).exists():
            problems.add(
                f"The base model {found} has no {MODEL_FILE}.",
                "restore the folder, or name another location: --base MODEL",
            )
        return
    if not _may_be_hub_id(source.base):
        problems.add(
            f"The base model {source.base} does not exist on this machine.",
            "copy it here, or name another location: --base MODEL",
        )


def _may_be_hub_id(name: str) -> bool:
    return not name.startswith(("/", ".", "~")) and name.count("/") <= 1


def _named_by_adapter(location: str) -> str:
    try:
        found = json.loads((Path(location) / ADAPTER_FILE).read_text())
    except (OSError, ValueError):
        return ""
    return str(found.get("base_model_name_or_path") or "") if isinstance(found, dict) else ""


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}
