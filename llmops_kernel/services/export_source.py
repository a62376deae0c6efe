"""Options of an export, and the files of a run that are exported: its result and base model."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from llmops_kernel.config.models.objectives import SftObjective, recorded
from llmops_kernel.config.models.sections import CATALOGUE
from llmops_kernel.errors import ExportError, RunStateError
from llmops_kernel.hardware.precision import AUTO
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.store.export_job import MANIFEST, GgufType, ModelSource, Precision, Target
from llmops_kernel.store.files import find
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.outputs import check_reported
from llmops_kernel.store.paths import cache
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.tables.files import ARROW_SCHEMES
from llmops_kernel.views import format as fmt

TARGETS: tuple[str, ...] = get_args(Target)
PRECISIONS: tuple[str, ...] = get_args(Precision)
GGUF_TYPES: tuple[str, ...] = get_args(GgufType)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of an export, each as in `llmops export --help`."""

    to: str = "merged"
    path: str | None = None
    force: bool = False
    dtype: str = "auto"
    quantization: str = "f16"
    lora: bool = False
    name: str | None = None
    base: str | None = None
    check: int = 4
    repo: str | None = None
    public: bool = False


@dataclass(frozen=True, kw_only=True)
class Export:
    """Result of an export: the files that were written, and how to use them."""

    run_id: str
    target: str
    path: Path | None
    """The folder; None for a hub or a URL."""
    location: str
    """Folder, URL or hub address."""
    files: tuple[str, ...]
    """Relative to the location."""
    size_bytes: int
    notes: tuple[str, ...] = ()
    """What is to be known about it, such as how many answers were compared."""
    command: str = ""
    """Uses what was written; can be copied."""


# --- Finds the files of a run that are exported: its result, and the base model that it names ---


ADAPTER_FILE, MODEL_FILE = "adapter_config.json", "config.json"


@dataclass
class Problems:
    """Problems that prevent an export, each with its remedy."""

    messages: list[tuple[str, str]] = field(default_factory=list)

    def add(self, message: str, remedy: str) -> None:
        self.messages.append((message, remedy))


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
    location, kind = located
    try:
        check_reported(location, record, attempts)
    except RunStateError as error:
        problems.add(error.message, error.remedy)
        return None
    model = _section(record.config, "model")
    trained = next((output for output in reversed(view.outputs) if output.base), None)
    if trained is not None:  # The run has trained the adapter further that its config names.
        model = {**model, "id": trained.base, "revision": trained.base_revision}
    base_name = base or str(model.get("id") or "") or _named_by_adapter(location)
    roots = (record.workspace_root,) if record.workspace_root else ()
    source = ModelSource(
        what=kind,
        location=location,
        base=base_name,
        revision=model.get("revision"),
        trust_remote_code=bool(model.get("trust_remote_code")),
        roots=roots,
        compute_dtype=_compute_dtype(model, view),
        auto_class=recorded(record.config).auto_class,
    )
    if kind == "adapter":
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
    outputs = [output for output in view.outputs if output.what in ("adapter", "model")]
    if outputs:
        path = outputs[-1].path
        kind: Literal["adapter", "model"] = "adapter" if outputs[-1].what == "adapter" else "model"
        if "://" not in path and _kind_of(Path(path)) is None:
            remedy = f"restore the folder, or train again: llmops resubmit {record.run_id}"
            problems.add(f"The result of run {record.run_id} is gone: {path}", remedy)
            return None
        return path, kind
    if not _section(record.config, "method") and (checkpoint := _in_checkpoints(view)) is not None:
        return checkpoint  # A script's own: those of a training config cannot be served.
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
    folder = find(source.base, [Path(root) for root in source.roots])
    if folder is not None:
        if not (folder / MODEL_FILE).exists():
            problems.add(
                f"The base model {folder} has no {MODEL_FILE}.",
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
        settings = json.loads((Path(location) / ADAPTER_FILE).read_text())
    except (OSError, ValueError):
        return ""
    return str(settings.get("base_model_name_or_path") or "") if isinstance(settings, dict) else ""


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}


# --- Problems of an export that can be known before it begins ---


_REPO = re.compile(r"[\w.-]+/[\w.-]+\Z")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*\Z")
_PACKAGES = {
    "merged": ("torch", "transformers", "safetensors"),
    "vllm": ("torch", "transformers", "safetensors"),
    "triton": ("torch", "transformers", "safetensors"),
    "gguf": ("torch", "transformers", "gguf"),
    "hub": ("torch", "transformers", "safetensors", "huggingface_hub"),
}
_KEEPS_ADAPTER = ("vllm", "hub")
_BYTES = {"float32": 4, "bfloat16": 2, "auto": 2}


def check_options(options: Options, problems: Problems) -> None:
    """Add what is wrong with the options alone."""
    choices = {
        "to": (options.to, TARGETS),
        "dtype": (options.dtype, PRECISIONS),
        "quantization": (options.quantization, GGUF_TYPES),
    }
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            problems.add(f"--{name} {value} is unknown.", f"use one of: {', '.join(allowed)}")
    if options.name is not None and not _NAME.match(options.name):
        problems.add(
            f"{options.name!r} cannot name a served model.",
            "use letters, digits, dots, dashes and underscores",
        )
    if options.to == "hub":
        _check_hub(options, problems)
    elif options.repo:
        problems.add("--repo is for --to hub only.", "leave it out, or use --to hub")
    elif options.path and "://" in options.path:
        problems.add(
            f"--to {options.to} writes a folder, not {options.path}.",
            f"use --to hub --path {options.path}, which uploads merged weights",
        )


def _check_hub(options: Options, problems: Problems) -> None:
    if bool(options.repo) == bool(options.path):
        problems.add(
            "--to hub needs either a repository or a URL.",
            "add --repo OWNER/NAME, or --path s3://BUCKET/FOLDER",
        )
    if options.repo and not _REPO.match(options.repo):
        problems.add(f"{options.repo!r} is not a repository.", "write it as OWNER/NAME")
    if options.path and "://" not in options.path:
        problems.add(
            f"--to hub uploads; {options.path} is a folder.", "use --to merged for a folder"
        )
    if options.repo and os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        problems.add(
            "HF_HUB_OFFLINE is set: nothing can be uploaded.", "unset it: unset HF_HUB_OFFLINE"
        )


def check_packages(options: Options, source: ModelSource | None, *, problems: Problems) -> None:
    """Add packages that are not installed here, where the work is done."""
    packages = [*_PACKAGES.get(options.to, ())]
    if source is not None and source.what == "adapter":
        packages.append("peft")
    target = options.path if options.to == "hub" else None
    urls = [target or "", source.location if source is not None else ""]
    for url in urls:
        if "://" in url:
            is_arrows = url.partition("://")[0] in ARROW_SCHEMES
            packages += ["fsspec", "pyarrow"] if is_arrows else ["fsspec"]
    missing = [name for name in dict.fromkeys(packages) if find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        train = {"torch", "transformers", "safetensors", "gguf", "peft", "huggingface_hub"}
        install = "llmops-kernel[train]" if train & set(missing) else " ".join(missing)
        problems.add(
            f"--to {options.to} needs packages that are not installed: {names}",
            f'pip install "{install}"',
        )


def check_fit(options: Options, source: ModelSource, problems: Problems) -> None:
    """Add what the run's result does not allow."""
    if source.auto_class != SftObjective().auto_class and options.to != "merged":
        problems.add(
            f"The run's model writes no text, and --to {options.to} is for one that does.",
            "use --to merged, a folder that Transformers reads",
        )
    if not options.lora:
        return
    if source.what == "model":
        problems.add(
            "The run is a full fine-tune: it has no adapter.", "leave out --lora: whole weights"
        )
    if options.to not in _KEEPS_ADAPTER:
        problems.add(
            f"--to {options.to} writes merged weights only.",
            f"leave out --lora, or use --to {' or '.join(_KEEPS_ADAPTER)}",
        )


def check_target(folder: Path, options: Options, problems: Problems) -> None:
    """Add what is in the way of the target folder."""
    above = next((parent for parent in folder.parents if parent.exists()), Path("/"))
    if not above.is_dir() or not os.access(above, os.W_OK):
        problems.add(f"{above} cannot be written to.", "choose another folder with --path")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / MANIFEST).exists():
        problems.add(
            f"{folder} exists and was not written by llmops export.",
            "choose another folder with --path; --force replaces only an earlier export",
        )
    elif not options.force:
        problems.add(f"{folder} exists.", "replace it with --force, or choose another --path")


def check_space(folder: Path, options: Options, source: ModelSource, problems: Problems) -> None:
    """Add a disk that has clearly too little space for the weights."""
    base = Path(source.location) if source.what == "model" else base_folder(source, cache())
    if base is None or not base.is_dir() or (options.lora and options.to == "hub"):
        return
    weights = sum(file.stat().st_size for file in base.glob("*.safetensors"))
    needed_bytes = weights * (2 if options.dtype == "float32" else 1)
    above = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(above).free
    if free < needed_bytes:
        problems.add(
            f"The disk of {above} has {fmt.byte_size(free)} free; about"
            f" {fmt.byte_size(needed_bytes)} are needed.",
            "free some space, or choose a folder on another disk with --path",
        )


def raise_problems(problems: Problems) -> None:
    """Raise ExportError with all problems at once."""
    if not problems.messages:
        return
    if len(problems.messages) == 1:
        message, remedy = problems.messages[0]
        raise ExportError(message, remedy=remedy)
    lines = [f"{message} ({remedy})" for message, remedy in problems.messages]
    raise ExportError(
        f"{len(lines)} things prevent the export; nothing was done:\n  - " + "\n  - ".join(lines),
        remedy="correct them all, then export again",
    )
