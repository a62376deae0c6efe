"""Load the trained model of a run, merge its adapter, save it, and check its answers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from llmops_kernel.errors import ExportError, ModelError
from llmops_kernel.export import card
from llmops_kernel.export.answers import Answer, Check, answer_all, compare, default_prompts
from llmops_kernel.models import merging
from llmops_kernel.models.answer_ends import list_ends, set_answer_ends
from llmops_kernel.models.merging import make_portable, portable_name
from llmops_kernel.models.source import model_source, pickle_refused
from llmops_kernel.store.export_job import ExportJob, ModelSource
from llmops_kernel.tables.files import open_url

Progress = Callable[[str], None]
_LANGUAGE_MODEL = "AutoModelForCausalLM"


@dataclass(frozen=True)
class Located:
    """The run's result and its base as something that Transformers can load."""

    source: ModelSource
    result: Path
    base: str
    """Equal to `result` for a full fine-tune."""

    @property
    def is_adapter(self) -> bool:
        return self.source.what == "adapter"

    @property
    def options(self) -> dict[str, Any]:
        """Return keyword arguments for everything that is loaded from `base`."""
        revision = self.source.revision if self.is_adapter else None
        return {"revision": revision, "trust_remote_code": self.source.trust_remote_code}


@dataclass(frozen=True)
class Merged:
    """A model in memory, with what was answered before anything in it was changed."""

    model: Any
    tokenizer: Any
    dtype: str
    """Number format of the weights to be written."""
    prompts: tuple[str, ...]
    before: list[Answer]
    base: str = ""
    """Folder or hub id of the base model that an adapter was merged into; empty: it was none."""
    probe: tuple[list[int], Any] = ([], None)
    """Tokens, and what a model that writes no text returned for them before."""


def locate(job: ExportJob) -> Located:
    """Find result and base; downloads a result at a URL. Raises ExportError, ModelError."""
    result = local_result(job.source, Path(job.folder))
    base = base_model(job.source, result) if job.source.what == "adapter" else str(result)
    return Located(job.source, result, base)


def load(located: Located, dtype: str) -> Any:
    """Return the trained model, an adapter still apart. Raises ModelError."""
    try:
        model = getattr(transformers, located.source.auto_class).from_pretrained(
            located.base,
            dtype=getattr(torch, dtype),
            **located.options,
            **merging.head_options(located.result),
        )
        if located.is_adapter:
            from peft import PeftModel

            model = PeftModel.from_pretrained(model, str(located.result))
    except UnpicklingError as error:
        raise pickle_refused(located.base) from error
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise _not_loaded(located, error) from error
    model.config.use_cache = True  # Training turns it off, and saves that with a full fine-tune.
    return model.eval()


def load_tokenizer(located: Located) -> Any:
    """Return the tokenizer that the run saved, else that of the base. Raises ModelError."""
    has_own = (located.result / "tokenizer_config.json").exists()
    options = {} if has_own else located.options
    try:
        return AutoTokenizer.from_pretrained(
            str(located.result) if has_own else located.base, **options
        )
    except (OSError, ValueError) as error:
        raise _not_loaded(located, error) from error


def stored_dtype(located: Located) -> str:
    """Return the dtype of the base model's files, `float32` if they do not say."""
    try:
        config = AutoConfig.from_pretrained(located.base, **located.options)
    except (OSError, ValueError) as error:
        raise _not_loaded(located, error) from error
    return str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")


def merge(
    job: ExportJob, located: Located, progress: Progress, *, dtype: str | None = None
) -> Merged:
    """Load, answer the check's prompts, then merge the adapter and round to the requested dtype."""
    dtype = dtype or (stored_dtype(located) if job.dtype == "auto" else job.dtype)
    progress(f"Loading {Path(located.base).name}")
    tokenizer = load_tokenizer(located)
    model = load(located, job.source.compute_dtype)
    set_answer_ends(model, tokenizer)
    writes_text = located.source.auto_class == _LANGUAGE_MODEL
    prompts = (*job.prompts, *default_prompts(tokenizer))[: job.check] if writes_text else ()
    before: list[Answer] = []
    ids = [] if writes_text else merging.probe([], vocabulary=len(tokenizer))
    probe = (ids, merging.logits_of(model, ids, model.device) if ids else None)
    if prompts:
        progress(f"Answering {len(prompts)} prompts before merging")
        before = answer_all(model, tokenizer, prompts, max_new_tokens=job.max_new_tokens)
    if located.is_adapter:
        progress("Merging the adapter")
        model = merging.merged(model)
    model = model.to(getattr(torch, dtype))
    model.config.dtype = getattr(torch, dtype)
    base = located.base if located.is_adapter else ""
    return Merged(model, tokenizer, dtype, prompts, before, base, probe)


def save(merged: Merged, folder: Path, progress: Progress) -> None:
    """Write weights as safetensors, config, generation config and tokenizer."""
    progress(f"Writing {merged.dtype} weights")
    folder.mkdir(parents=True, exist_ok=True)
    merged.model.save_pretrained(folder)
    merged.tokenizer.save_pretrained(folder)
    make_portable(folder, source=merged.base)
    make_readable(folder)


def write_generation_config(located: Located, tokenizer: Any, folder: Path) -> None:
    """Write the base's generation settings, with all that ends an answer, beside an adapter."""
    try:
        settings = GenerationConfig.from_pretrained(located.base, **located.options)
    except OSError:  # Not every model has some.
        settings = GenerationConfig()
    list_ends(settings, tokenizer)
    settings.save_pretrained(folder)


def check_saved(job: ExportJob, merged: Merged, folder: Path, progress: Progress) -> Check | None:
    """Load what was saved and compare its answers. Raises ExportError; None without prompts."""
    if not merged.prompts:
        return None
    progress("Loading it back and comparing its answers")
    compute = job.source.compute_dtype
    again = _loaded_back(job, folder)
    after = answer_all(
        again.eval(), merged.tokenizer, merged.prompts, max_new_tokens=job.max_new_tokens
    )
    is_exact = compute == merged.dtype == "float32"
    return compare(merged.before, after, rounded_to="" if is_exact else merged.dtype)


def _loaded_back(job: ExportJob, folder: Path) -> Any:
    return getattr(transformers, job.source.auto_class).from_pretrained(
        str(folder),
        dtype=getattr(torch, job.source.compute_dtype),
        trust_remote_code=job.source.trust_remote_code,
    )


def check_vectors(job: ExportJob, merged: Merged, folder: Path) -> str:
    """Return how far what was saved is from the run's result, of a model that writes no text.

    Raises ExportError.
    """
    ids, before = merged.probe
    again = _loaded_back(job, folder)
    distance = merging.difference(before, merging.logits_of(again, ids, again.device))
    is_exact = job.source.compute_dtype == merged.dtype == "float32"
    if distance > (merging.EXACT if is_exact else merging.ROUNDED):
        raise ExportError(
            f"What was written is another model: its numbers are {distance:.2%} away from those of"
            " the run's result.",
            remedy="export with --dtype float32; report it with the model's name",
        )
    return f"numbers for {len(ids)} tokens differ by {distance:.1e} of their size."


def make_readable(folder: Path) -> None:
    """Give each file the mode of a new one: safetensors writes some for their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            file.chmod((file.stat().st_mode | 0o666) & ~mask)


def _not_loaded(located: Located, error: Exception) -> ModelError:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    subject = f"{located.base} with the adapter {located.result}" if located.is_adapter else ""
    return ModelError(
        f"{subject or located.base} cannot be loaded: {first}",
        remedy="check that the base model is the one that the run was trained from, and, for a"
        " private hub model, that HF_TOKEN is set; --base names another location of it",
    )


# --- Folder with merged weights, as Transformers, vLLM and the hub read it ---


_ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


def write_merged(
    job: ExportJob, located: Located, folder: Path, progress: Progress
) -> tuple[str, ...]:
    """Write model, tokenizer and card; return notes about the weights."""
    merged = merge(job, located, progress)
    save(merged, folder, progress)
    for name in merging.BESIDE:
        if (located.result / name).is_file():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(located.result / name, folder / name)
    check = check_saved(job, merged, folder, progress)
    text = check.text() if check is not None else ""
    if merged.probe[0]:
        text = check_vectors(job, merged, folder)
    kind = "adapter merged into the base" if located.is_adapter else "full fine-tune"
    notes = [f"Weights: {kind}, {merged.dtype}."]
    if text:
        notes.append(
            "Loaded back by Transformers and compared with the run's own result, computed in"
            f" {job.source.compute_dtype}: {text}"
        )
    what = "A causal language model: weights, tokenizer and generation settings."
    if located.source.auto_class != _LANGUAGE_MODEL:
        what = f"A model of Transformers' {located.source.auto_class}: weights and tokenizer."
    text = card.card(job, what=what, notes=notes, base_folder=located.base)
    (folder / card.NAME).write_text(text)
    return tuple(notes)


def write_adapter(job: ExportJob, located: Located, folder: Path, progress: Progress) -> None:
    """Copy adapter and tokenizer, with a card."""
    progress("Copying the adapter")
    folder.mkdir(parents=True, exist_ok=True)
    for name in _ADAPTER_WEIGHTS:
        if (located.result / name).exists():
            shutil.copyfile(located.result / name, folder / name)
    config = adapter_config(located.result)
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    tokenizer = load_tokenizer(located)
    tokenizer.save_pretrained(folder)
    write_generation_config(located, tokenizer, folder)
    base = job.source.base or str(config.get("base_model_name_or_path"))
    make_portable(folder, base=portable_name(base, located.base))
    make_readable(folder)
    what = "A PEFT adapter with its tokenizer; it needs the base model."
    (folder / card.NAME).write_text(card.card(job, what=what, notes=(), base_folder=located.base))


# --- The files of an export: the run's result and its base model, as local folders ---


ADAPTER_CONFIG = "adapter_config.json"
DOWNLOAD = ".result"
"""In the scratch folder: the result of a run that is at a URL."""


def local_result(source: ModelSource, scratch: Path) -> Path:
    """Return the folder of the run's result; one at a URL is downloaded into `scratch`."""
    if "://" not in source.location:
        return Path(source.location)
    folder = scratch / DOWNLOAD
    try:
        filesystem, path = open_url(source.location)
        files = filesystem.find(path)
        for file in files:
            target = folder / str(file)[len(str(path)) :].lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            filesystem.get_file(file, str(target))
    except Exception as error:  # Each kind of bucket has errors of its own.
        raise ExportError(
            f"The result of the run cannot be read from {source.location}:"
            f" {type(error).__name__}: {error}",
            remedy="check the URL and the credentials for it in this environment",
        ) from error
    if not files:
        raise ExportError(
            f"The result of the run is gone: there is nothing at {source.location}",
            remedy="restore it, or train again: llmops resubmit RUN",
        )
    return folder


def adapter_config(folder: Path) -> dict[str, Any]:
    """Return an adapter's config; empty if there is none."""
    with suppress(OSError, ValueError):
        value = json.loads((folder / ADAPTER_CONFIG).read_text())
        return value if isinstance(value, dict) else {}
    return {}


def base_model(source: ModelSource, result: Path) -> str:
    """Return the base model as a folder or a hub id. Raises ModelError."""
    base = source.base or str(adapter_config(result).get("base_model_name_or_path") or "")
    if not base:
        raise ModelError(
            f"Neither the run nor {result / ADAPTER_CONFIG} names the base model.",
            remedy="name it with --base",
        )
    roots = tuple(Path(root) for root in source.roots)
    return model_source(base, roots=roots, cache=None)
