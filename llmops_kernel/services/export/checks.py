"""Everything that stands against an export and can be known before it begins."""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from llmops_kernel.errors import ExportError
from llmops_kernel.services.export.options import GGUF_TYPES, PRECISIONS, TARGETS, Options
from llmops_kernel.services.export.source import Problems, base_folder
from llmops_kernel.store.export_job import MANIFEST, ModelSource
from llmops_kernel.store.paths import cache
from llmops_kernel.tables.files import ARROW_SCHEMES
from llmops_kernel.views import format as fmt

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
    wanted = [*_PACKAGES.get(options.to, ())]
    if source is not None and source.what == "adapter":
        wanted.append("peft")
    target = options.path if options.to == "hub" else None
    urls = [target or "", source.location if source is not None else ""]
    for url in urls:
        if "://" in url:
            is_arrows = url.partition("://")[0] in ARROW_SCHEMES
            wanted += ["fsspec", "pyarrow"] if is_arrows else ["fsspec"]
    missing = [name for name in dict.fromkeys(wanted) if find_spec(name) is None]
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
    above = next((one for one in folder.parents if one.exists()), Path("/"))
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
    needed = weights * (2 if options.dtype == "float32" else 1)
    above = next(one for one in (folder, *folder.parents) if one.exists())
    free = shutil.disk_usage(above).free
    if free < needed:
        problems.add(
            f"The disk of {above} has {fmt.byte_size(free)} free; about"
            f" {fmt.byte_size(needed)} are needed.",
            "free some space, or choose a folder on another disk with --path",
        )


def raise_problems(problems: Problems) -> None:
    """Raise ExportError with all problems at once."""
    if not problems.found:
        return
    if len(problems.found) == 1:
        message, remedy = problems.found[0]
        raise ExportError(message, remedy=remedy)
    lines = [f"{message} ({remedy})" for message, remedy in problems.found]
    raise ExportError(
        f"{len(lines)} things prevent the export; nothing was done:\n  - " + "\n  - ".join(lines),
        remedy="correct them all, then export again",
    )
