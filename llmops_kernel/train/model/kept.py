"""Map a model that an earlier run of this node has loaded, instead of loading it again.

What `from_pretrained` does with a model of 0.5 GB (read, convert, assign 272 weights) takes 0.3 s;
mapping what it returned takes 0.02 s. A run that trains the mapped weights writes into pages of its
own (MAP_PRIVATE), and those that it freezes are shared with the other workers of the node.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.store.kept.models import KeptModel, KeptModels
from llmops_kernel.store.paths import cache
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.version import VERSION

MAPPED = "mapped: kept on this node by an earlier run"
KEPT = "read from its files, and kept for the next run"
_COMMIT = re.compile(r"[0-9a-f]{40}")

Loaded = tuple[Any, dict[str, Any]]
"""A model, and what `from_pretrained` says about its loading."""


@dataclass(frozen=True)
class Keeping:
    """How the model of one run is kept and found again."""

    store: KeptModels
    about: KeptModel
    folder: Path
    """The model's own files."""
    name: str
    is_writer: bool
    """One worker of a node keeps it; all of them map it."""

    @classmethod
    def of(cls, source: str, config: TrainingConfig, context: WorkerContext) -> Keeping | str:
        """Return it for a run whose model can be kept, else the reason why it cannot.

        An empty reason: nothing is to be kept.
        """
        if not context.keep_bytes:
            return ""
        folder = _folder(source, config)
        if why := _why_not(folder, config):
            return why
        assert folder is not None
        about = KeptModel(model=config.model.id, dtype=config.model.dtype, user=context.user)
        parts = {
            "folder": str(folder.resolve()),
            "user": context.user,
            "dtype": config.model.dtype,
            "method": config.method.saves,
            "strategy": config.parallelism.strategy,
            "attention": config.model.attention,
            "gpu": context.use_gpu,
        }
        store = KeptModels(context.cache or cache(), limit_bytes=context.keep_bytes)
        return cls(store, about, folder, _digest(parts), context.local_rank == 0)

    def model(self, read: Callable[[], Loaded]) -> tuple[Any, str]:
        """Return the model, mapped or read, and words for the waterfall."""
        stamp = self._stamp()
        model, problem = self._mapped(stamp)
        if model is not None:
            return model, MAPPED
        state = torch.get_rng_state()
        model, info = read()
        if not self.is_writer:
            return model, problem
        why = _random(info, state) or (stamp != self._stamp() and "its files are changing")
        why = why or self._keep(model, stamp)
        if why:
            return model, f"read from its files, not kept: {why}"
        return model, f"{problem}; kept again" if problem else KEPT

    def _mapped(self, stamp: str) -> tuple[Any, str]:
        """Return the kept model; or None and the reason, empty if there is nothing to say."""
        path = self.store.find(self.name, stamp)
        if path is None:
            changed = self.store.has_other(self.name, stamp)
            return None, "read again: its files or libraries have changed" if changed else ""
        try:
            with torch.serialization.set_default_mmap_options(mmap.MAP_PRIVATE):
                return torch.load(path, mmap=True, weights_only=False), ""
        except Exception as error:  # A damaged archive raises many unrelated types.
            self.store.remove(path)
            return None, f"read from its files: what was kept is damaged ({type(error).__name__})"

    def _keep(self, model: Any, stamp: str) -> str:
        """Return why the model is not kept; empty if it is."""
        size = sum(one.untyped_storage().nbytes() for one in _storages(model))
        about = KeptModel(
            model=self.about.model, dtype=self.about.dtype, user=self.about.user, num_bytes=size
        )
        checked = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(False)  # They take longer than the writing.
        try:
            return self.store.add(self.name, stamp, about, lambda path: torch.save(model, path))
        except Exception as error:  # Pickle raises whatever the parts of a model raise.
            first = (str(error).splitlines() or [""])[0]
            return f"it cannot be written ({type(error).__name__}: {first[:120]})"
        finally:
            torch.serialization.set_crc32_options(checked)

    def _stamp(self) -> str:
        """Return what decides how the model is loaded: its files, and the code that reads them."""
        files = []
        for path in sorted(self.folder.iterdir()):
            info = path.stat()
            if path.is_file():
                times = (info.st_mtime_ns, info.st_ctime_ns)
                files.append((path.name, info.st_size, *times, info.st_ino, info.st_dev))
        versions = (VERSION, torch.__version__, transformers.__version__, platform.python_version())
        code = [_content(path) for path in (Path(__file__), Path(__file__).with_name("load.py"))]
        return _digest([files, versions, code])


def _folder(source: str, config: TrainingConfig) -> Path | None:
    """Return the folder of the model's files on this node.

    None for an id of the hub without the hash of a commit: there may be a newer one.
    """
    if Path(source).is_dir():
        return Path(source)
    revision = config.model.revision or ""
    if not _COMMIT.fullmatch(revision):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source, "config.json", revision=revision)
    return Path(found).parent if isinstance(found, str | os.PathLike) else None


def _why_not(folder: Path | None, config: TrainingConfig) -> str:
    if config.model.trust_remote_code:
        return "code of the model may do anything when it is loaded"
    if config.method.load:
        return f"{config.method.type} packs the weights while they are loaded"
    if "weights" in config.parallelism.sharded:
        return f"{config.parallelism.strategy} shards the weights while they are loaded"
    if folder is None:
        return "the hub is asked for a newer revision each time (set model.revision to a commit)"
    if (folder / "adapter_config.json").exists():
        return "its folder has an adapter, whose base model is elsewhere"
    return ""


def _random(info: dict[str, Any], state: torch.Tensor) -> str:
    """Return why loading the model again would give other weights; empty: it would not."""
    missing = sorted(info.get("missing_keys") or ())
    if missing:
        return f"{missing[0]} is not in its files and gets random values"
    if not torch.equal(state, torch.get_rng_state()):
        return "loading it draws random numbers"
    return ""


def _storages(model: Any) -> list[torch.Tensor]:
    """Return one tensor of each storage: tied weights have one together."""
    found = {}
    for one in [*model.parameters(), *model.buffers()]:
        found[one.untyped_storage().data_ptr()] = one
    return list(found.values())


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]
