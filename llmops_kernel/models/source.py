"""The place of a model's files: the catalogue, a folder, or the hub."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading import model_folder
from llmops_kernel.errors import ModelError
from llmops_kernel.models import catalogue
from llmops_kernel.store.files import find


def model_source(model_id: str, *, roots: tuple[Path, ...], cache: Path | None) -> str:
    """Return a folder if there is one (catalogue, workspace), else the id as the hub knows it."""
    if catalogue.is_catalogue_name(model_id):
        return str(catalogue.prepare(model_id, cache))
    folder = find(model_id, roots)
    return str(folder) if folder is not None else model_id


def looks_like_hub_id(name: str) -> bool:
    """Return whether a name has the form `owner/model`. A path in a workspace may have it too."""
    return name.count("/") == 1 and not name.startswith(("/", ".", "~"))


def base_of_adapter(
    folder: Path, *, roots: tuple[Path, ...], cache: Path | None
) -> tuple[str, str | None, str]:
    """Return name, revision and place of the model that an adapter is of. Raises ModelError."""
    names = model_folder.base_names(folder)
    for name, revision in names:
        if catalogue.is_catalogue_name(name) or find(name, roots) is not None:
            weights = model_source(name, roots=roots, cache=cache)
            if not model_folder.is_adapter(Path(weights)):
                return name, revision, weights
    for name, revision in names:
        # One that is on disk is the adapter that this one continues.
        if looks_like_hub_id(name) and find(name, roots) is None:
            return name, revision, name
    base = f"the base model {names[0][0]}, which is not on this node" if names else "no known model"
    raise ModelError(
        f"The adapter in {folder} is of {base}.",
        remedy=f"write its folder or hub id into base_model_name_or_path of {model_folder.CONFIG}",
    )


def tokenizer_of(
    config: TrainingConfig, *, roots: tuple[Path, ...], cache: Path | None
) -> tuple[str, TrainingConfig]:
    """Return where a run's tokenizer is, and its config with the model that it is of.

    An adapter's folder has the one that it was trained with, or none: then it is the base model's.
    Raises ModelError.
    """
    source = model_source(config.model.id, roots=roots, cache=cache)
    if not model_folder.is_adapter(Path(source)) or has_tokenizer(Path(source)):
        return source, config
    name, revision, weights = base_of_adapter(Path(source), roots=roots, cache=cache)
    model = config.model.model_copy(update={"id": name, "revision": revision})
    return weights, config.model_copy(update={"model": model})


def has_tokenizer(folder: Path) -> bool:
    """Return whether a model's or an adapter's folder has a tokenizer."""
    return (folder / "tokenizer_config.json").exists()


def pickle_refused(model: str) -> ModelError:
    """Return the error for weights that are a pickle with more than tensors in it.

    PyTorch reads no others (`weights_only`), and advises to turn that off, which runs the file.
    """
    return ModelError(
        f"The weights of {model} are a pickle (.bin) that names Python objects, not only tensors:"
        " loading it would run code of whoever wrote it, so it is refused.",
        remedy="use a version of the model in safetensors; where you trust the file, convert it"
        " yourself: torch.load(FILE, weights_only=False), then"
        " safetensors.torch.save_file(weights, 'model.safetensors')",
    )
