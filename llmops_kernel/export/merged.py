"""A folder with merged weights, as Transformers, vLLM and the hub read it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from llmops_kernel.export import card
from llmops_kernel.export.sources import ADAPTER_CONFIG, adapter_config
from llmops_kernel.export.weights import (
    Located,
    Progress,
    check_saved,
    load_tokenizer,
    make_readable,
    merge,
    save,
    write_generation_config,
)
from llmops_kernel.models.portable import make_portable, portable_name
from llmops_kernel.store.export_job import ExportJob

_ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


def write_merged(
    job: ExportJob, located: Located, folder: Path, progress: Progress
) -> tuple[str, ...]:
    """Write model, tokenizer and card; return what is to be said about the weights."""
    merged = merge(job, located, progress)
    save(merged, folder, progress)
    check = check_saved(job, merged, folder, progress)
    kind = "adapter merged into the base" if located.is_adapter else "full fine-tune"
    notes = [f"Weights: {kind}, {merged.dtype}."]
    if check is not None:
        notes.append(
            "Loaded back by Transformers and compared with the run's own result, computed in"
            f" {job.source.compute_dtype}: {check.text()}"
        )
    what = "A causal language model: weights, tokenizer and generation settings."
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
