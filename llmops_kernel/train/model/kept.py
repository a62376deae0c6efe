"""Map a model that an earlier run of this node has loaded, instead of loading it again.

What `from_pretrained` does with a model of 0.5 GB (read, convert, assign 272 weights) takes 0.3 s;
mapping what it returned takes 0.02 s. A run that trains the mapped weights writes into pages of its
own (MAP_PRIVATE), and those that it freezes are shared with the other workers of the node.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import io
import json
import mmap
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.hardware.priority import cores_each
from llmops_kernel.store.kept_models import KeptModel, KeptModels
from llmops_kernel.store.paths import cache
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.version import VERSION
from llmops_kernel.warm.loaded_files import facts_of

_CHUNK_BYTES = 1 << 24
MAPPED = "mapped: kept on this node by an earlier run"
KEPT = "read from its files, and kept for the next run"
_COMMIT = re.compile(r"[0-9a-f]{40}")

Loaded = tuple[Any, dict[str, Any]]
"""A model, and what `from_pretrained` says about its loading."""


@dataclass(frozen=True)
class Keeping:
    """The cache entry for the model of one run."""

    store: KeptModels
    about: KeptModel
    folder: Path
    """The model's own files."""
    name: str
    is_writer: bool
    """True for the one worker of a node that keeps it; all of them map it."""
    most_s: float = 4.0
    """Seconds that the run waits for the disk until what it has loaded is kept."""
    device: torch.device | None = None
    """The GPU that a mapped model is copied to at once; None: it stays where it is mapped."""
    local_world_size: int = 1
    """Workers of the node that copy it at once."""

    @classmethod
    def of(cls, source: str, config: TrainingConfig, context: WorkerContext) -> Keeping | str:
        """Return it for a run whose model can be kept, else the reason why it cannot.

        An empty reason: nothing is to be kept.
        """
        if not context.keep_bytes:
            return ""
        folder = folder_of(source, config)
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
            "class": config.objective.auto_class,
            "gpu": context.use_gpu,
        }
        store = KeptModels(context.cache or cache(), limit_bytes=context.keep_bytes)
        return cls(
            store,
            about,
            folder,
            _digest(parts),
            is_writer=context.local_rank == 0,
            device=torch.device("cuda", torch.cuda.current_device()) if context.use_gpu else None,
            local_world_size=context.local_world_size,
        )

    def model(self, read: Callable[[], Loaded]) -> tuple[Any, str]:
        """Return the model, mapped or read, and words for the waterfall."""
        stamp = self._stamp()
        model, problem = self._mapped(stamp) if stamp else (None, "")
        if model is not None:
            if self.device is not None:
                move(model, self.device, local_world_size=self.local_world_size)
            return model, MAPPED
        state = torch.get_rng_state()
        model, _ = read()
        if not self.is_writer:
            return model, problem
        why = _peculiar(model, state)
        if not why and (not stamp or stamp != self._stamp()):
            why = "its files are changing"
        if why := why or self._keep(model, stamp):
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
        size = sum(storage.untyped_storage().nbytes() for storage in _storages(model))
        about = replace(self.about, num_bytes=size)
        checked = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(False)  # They take longer than the writing.
        try:
            return self.store.add(self.name, stamp, about, self._written(model))
        except Exception as error:  # Pickle raises whatever the parts of a model raise.
            first = (str(error).splitlines() or [""])[0]
            return f"it cannot be written ({type(error).__name__}: {first[:120]})"
        finally:
            torch.serialization.set_crc32_options(checked)

    def _written(self, model: Any) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            with path.open("wb", buffering=0) as file:
                torch.save(model, _Timely(file, most_s=self.most_s))

        return write

    def _stamp(self) -> str:
        """Return what decides how the model is loaded: its files, and the code that reads them.

        Empty if they cannot be looked at; whoever reads them reports it.
        """
        try:
            files = facts_of(self.folder)
        except OSError:
            return ""
        versions = (VERSION, torch.__version__, transformers.__version__, platform.python_version())
        code = [_content(path) for path in (Path(__file__), Path(__file__).with_name("load.py"))]
        return _digest([files, versions, code])


def folder_of(source: str, config: TrainingConfig) -> Path | None:
    """Return the folder of the model's files on this node.

    None for an id of the hub without the hash of a commit: there may be a newer one.
    """
    if Path(source).is_dir():
        return Path(source)
    revision = config.model.revision or ""
    if not _COMMIT.fullmatch(revision):
        return None
    from huggingface_hub import try_to_load_from_cache

    try:
        file = try_to_load_from_cache(source, "config.json", revision=revision)
    except ValueError:  # It is no id: whoever loads it reports that.
        return None
    return Path(file).parent if isinstance(file, str | os.PathLike) else None


def _why_not(folder: Path | None, config: TrainingConfig) -> str:
    if config.model.trust_remote_code:
        return "code of the model may do anything when it is loaded"
    if config.hooks.file is not None:
        return "hooks may change what is loaded"
    if config.method.load:
        return f"{config.method.type} packs the weights while they are loaded"
    if "weights" in config.parallelism.sharded:
        return f"{config.parallelism.strategy} shards the weights while they are loaded"
    if folder is None:
        return "the hub is asked for a newer revision each time (set model.revision to a commit)"
    if (folder / "adapter_config.json").exists():
        return "its folder has an adapter, whose base model is elsewhere"
    return ""


def _peculiar(model: Any, state: torch.Tensor) -> str:
    """Return why loading the model again might give another one; empty: it would not."""
    if getattr(model.config, "quantization_config", None) is not None:
        return "its weights are quantised, and the device decides how they are unpacked"
    if not torch.equal(state, torch.get_rng_state()):
        return "loading it draws random numbers"
    return ""


class _Timely(io.RawIOBase):
    """A file whose writing raises TimeoutError after a while: the run waits for it."""

    def __init__(self, file: Any, *, most_s: float) -> None:
        self._file, self._most_s = file, most_s
        self._until_s = time.monotonic() + most_s

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view, done = memoryview(data).cast("B"), 0
        while done < len(view):
            if time.monotonic() > self._until_s:
                raise TimeoutError(errno.ETIMEDOUT, f"the disk took more than {self._most_s:g} s")
            done += self._file.write(view[done : done + _CHUNK_BYTES])
        return done


def _storages(model: Any) -> list[torch.Tensor]:
    """Return one tensor of each storage: tied weights have one together."""
    by_address = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        by_address[tensor.untyped_storage().data_ptr()] = tensor
    return list(by_address.values())


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]


# --- Copy of a mapped model to a GPU with several cores ---
# `model.to("cuda")` waits for one core, which faults the file's pages in and copies them to
# memory that the GPU can read: 6 GB/s with an H100, slower than reading the files anew. Threads
# that fill page-locked buffers, from which the GPU copies meanwhile, do 16
# (tests/benchmarks/README.md).


_BUFFER_BYTES = 32 << 20
_BLOCK_BYTES = 4 << 20
"""Bytes that a thread copies at a time; a few per buffer and thread."""
_MOST_THREADS = 8
"""As measured; fewer and more were not tried."""


@dataclass(frozen=True)
class _Block:
    source: int
    """Address in the memory of the host."""
    offset: int
    """Place in the buffer, bytes."""
    size: int
    target: torch.Tensor
    """Destination of the bytes, on the GPU."""


def move(model: Any, device: torch.device, *, local_world_size: int = 1) -> None:
    """Move the parameters and buffers of a model from the host's memory to a device, in place.

    As `model.to(device)`: the same objects, and those that shared memory share it again. The memory
    on the host is not written. `local_world_size`: how many workers of the node do so at once.
    Raises torch.OutOfMemoryError and RuntimeError; the model can then be on both, and is of no use.
    """
    tensors = [*model.parameters(), *model.buffers()]
    sources = [storage.untyped_storage() for storage in tensors]
    targets = {
        storage.data_ptr(): torch.empty(storage.nbytes(), dtype=torch.uint8, device=device)
        for storage in {storage_.data_ptr(): storage_ for storage_ in sources}.values()
    }
    threads = min(_MOST_THREADS, cores_each(local_world_size))
    _copy(dict(sorted(targets.items())), threads=threads, is_gpu=device.type == "cuda")
    for tensor, source in zip(tensors, sources, strict=True):
        place = targets[source.data_ptr()].untyped_storage()
        moved = torch.empty(0, dtype=tensor.dtype, device=device)
        moved.set_(place, tensor.storage_offset(), tensor.size(), tensor.stride())
        tensor.data = moved


def _copy(targets: dict[int, torch.Tensor], *, threads: int, is_gpu: bool) -> None:
    """Fill each target from its address. Two buffers: one is filled while the other is read."""
    buffers = [torch.empty(_BUFFER_BYTES, dtype=torch.uint8, pin_memory=is_gpu) for _ in range(2)]
    copied = [torch.cuda.Event() if is_gpu else None for _ in buffers]
    with ThreadPoolExecutor(threads) as pool:
        for number, blocks in enumerate(_loads(targets)):
            buffer, event = buffers[number % 2], copied[number % 2]
            if event is not None:
                event.synchronize()
            # The copying gives up the interpreter's lock.
            list(pool.map(partial(_fill, buffer.data_ptr()), blocks))
            for block in blocks:
                block.target.copy_(
                    buffer[block.offset : block.offset + block.size], non_blocking=True
                )
            if event is not None:
                event.record()
    if is_gpu:  # The buffers, and the file that was mapped, can go.
        torch.cuda.current_stream().synchronize()


def _fill(buffer: int, block: _Block) -> None:
    ctypes.memmove(buffer + block.offset, block.source, block.size)


def _loads(targets: dict[int, torch.Tensor]) -> Iterator[list[_Block]]:
    """Yield what fits into a buffer at once, until all is copied."""
    blocks: list[_Block] = []
    used = 0
    for address, target in targets.items():
        for begin in range(0, target.nbytes, _BLOCK_BYTES):
            size = min(_BLOCK_BYTES, target.nbytes - begin)
            if used + size > _BUFFER_BYTES:
                yield blocks
                blocks, used = [], 0
            blocks.append(_Block(address + begin, used, size, target[begin : begin + size]))
            used += size
    if blocks:
        yield blocks
