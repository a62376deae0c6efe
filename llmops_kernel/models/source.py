"""Where the files of a model are: the catalogue, a folder, or the hub."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading import adapters
from llmops_kernel.errors import ModelError
from llmops_kernel.models import catalogue
from llmops_kernel.store.files import find
from llmops_kernel.store.paths import cache
from llmops_kernel.tables.files import open_url


def model_source(model_id: str, *, roots: tuple[Path, ...], cache: Path | None) -> str:
    """Return a folder if there is one (catalogue, workspace), else the id as the hub knows it."""
    if catalogue.is_catalogue_name(model_id):
        return str(catalogue.prepare(model_id, cache))
    found = find(model_id, roots)
    return str(found) if found is not None else model_id


def looks_like_hub_id(name: str) -> bool:
    """Return whether a name has the form `owner/model`. A path in a workspace may have it too."""
    return name.count("/") == 1 and not name.startswith(("/", ".", "~"))


def base_of_adapter(
    folder: Path, *, roots: tuple[Path, ...], cache: Path | None
) -> tuple[str, str | None, str]:
    """Return name, revision and place of the model that an adapter is of. Raises ModelError."""
    names = adapters.base_names(folder)
    for name, revision in names:
        if catalogue.is_catalogue_name(name) or find(name, roots) is not None:
            weights = model_source(name, roots=roots, cache=cache)
            if not adapters.is_adapter(Path(weights)):
                return name, revision, weights
    for name, revision in names:
        # One that is on disk is the adapter that this one continues.
        if looks_like_hub_id(name) and find(name, roots) is None:
            return name, revision, name
    known = (
        f"the base model {names[0][0]}, which is not on this node" if names else "no known model"
    )
    raise ModelError(
        f"The adapter in {folder} is of {known}.",
        remedy=f"write its folder or hub id into base_model_name_or_path of {adapters.CONFIG}",
    )


def tokenizer_of(
    config: TrainingConfig, *, roots: tuple[Path, ...], cache: Path | None
) -> tuple[str, TrainingConfig]:
    """Return where a run's tokenizer is, and its config with the model that it is of.

    An adapter's folder has the one that it was trained with, or none: then it is the base model's.
    Raises ModelError.
    """
    source = model_source(config.model.id, roots=roots, cache=cache)
    if not adapters.is_adapter(Path(source)) or has_tokenizer(Path(source)):
        return source, config
    name, revision, weights = base_of_adapter(Path(source), roots=roots, cache=cache)
    model = config.model.model_copy(update={"id": name, "revision": revision})
    return weights, config.model_copy(update={"model": model})


def has_tokenizer(folder: Path) -> bool:
    """Return whether a model's or an adapter's folder has a tokenizer."""
    return (folder / "tokenizer_config.json").exists()


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


# --- Copies a model or an adapter from a URL onto this node, once ---


_MARKER = "config.json", "adapter_config.json"
_HUB = "hf://"


def local_folder(source: str, root: Path | None = None) -> str:
    """Return a folder of this node with the files of a URL; anything else is returned as it is.

    Safe among processes: one copies, the others wait; a copy is whole or absent. Files that have
    changed behind the URL are copied again. Raises ModelError, DataError,
    MissingDependencyError.
    """
    if "://" not in source or source.startswith(_HUB):
        return source
    files, path = open_url(source)
    try:
        infos = files.find(path, detail=True)
    except Exception as error:  # Each kind of store has errors of its own.
        raise _failed(source, error) from error
    if not any(PurePosixPath(name).name in _MARKER for name in infos):
        raise ModelError(
            f"{source} has no {' or '.join(_MARKER)}.",
            remedy="name the folder of a model or of a LoRA adapter",
        )
    folder = (root or cache()) / "fetched" / _key(source, infos)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(folder) + ".lock"):
        if not folder.exists():
            _copy(source, files, path, list(infos), folder)
    return str(folder)


def _key(source: str, infos: dict[str, Any]) -> str:
    marks = [
        (name, info.get("size"), str(info.get("ETag") or info.get("mtime") or ""))
        for name, info in sorted(infos.items())
    ]
    return hashlib.sha256(repr((source, marks)).encode()).hexdigest()[:16]


def _copy(source: str, files: Any, path: str, names: list[str], folder: Path) -> None:
    scratch = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        for name in names:
            target = scratch / PurePosixPath(name).relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            files.get_file(name, str(target))
        scratch.rename(folder)
    except Exception as error:
        raise _failed(source, error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _failed(source: str, error: Exception) -> ModelError:
    return ModelError(
        f"{source} cannot be copied to this node: {type(error).__name__}: {error}",
        remedy="check the URL, the nodes' credentials and their disk (LLMOPS_CACHE moves the copy)",
    )
