"""Where the files of a model are: the catalogue, a folder, or the hub."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.errors import ModelError
from llmops_kernel.models import catalogue
from llmops_kernel.store.files import find


def model_source(model_id: str, *, roots: tuple[Path, ...], cache: Path | None) -> str:
    """Return a folder if there is one (catalogue, workspace), else the id as the hub knows it."""
    if catalogue.is_catalogue_name(model_id):
        return str(catalogue.prepare(model_id, cache))
    found = find(model_id, roots)
    return str(found) if found is not None else model_id


def pickle_refused(model: str) -> ModelError:
    """What to raise for weights that are a pickle with more than tensors in it.

    PyTorch reads no others (`weights_only`), and advises to turn that off, which runs the file.
    """
    return ModelError(
        f"The weights of {model} are a pickle (.bin) that names Python objects, not only tensors:"
        " loading it would run code of whoever wrote it, so it is refused.",
        remedy="use a version of the model in safetensors; where you trust the file, convert it"
        " yourself: torch.load(FILE, weights_only=False), then"
        " safetensors.torch.save_file(weights, 'model.safetensors')",
    )
