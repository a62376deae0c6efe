"""Copy a mapped model to a GPU with several cores.

`model.to("cuda")` waits for one core, which faults the file's pages in and copies them to memory
that the GPU can read: 6 GB/s with an H100, slower than reading the files anew. Threads that fill
page-locked buffers, from which the GPU copies meanwhile, do 16 (tests/benchmarks/kept/gpu.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from llmops_kernel.hardware.priority import cores_each

_BUFFER_BYTES = 32 << 20
_BLOCK_BYTES = 4 << 20
"""What a thread copies at a time; a few per buffer and thread."""
_MOST_THREADS = 8
"""As measured; fewer and more were not tried."""


@dataclass(frozen=True)
class _Block:
    source: int
    """Address in the memory of the host."""
    at: int
    """Place in the buffer, bytes."""
    size: int
    target: torch.Tensor
    """Of bytes, on the GPU."""


def move(model: Any, device: torch.device, *, local_world_size: int = 1) -> None:
    """Move the parameters and buffers of a model from the host's memory to a device, in place.

    As `model.to(device)`: the same objects, and those that shared memory share it again. The memory
    on the host is not written. `local_world_size`: how many workers of the node do so at once.
    Raises torch.OutOfMemoryError and RuntimeError; the model can then be on both, and is of no use.
    """
    tensors = [*model.parameters(), *model.buffers()]
    sources = [one.untyped_storage() for one in tensors]
    targets = {
        one.data_ptr(): torch.empty(one.nbytes(), dtype=torch.uint8, device=device)
        for one in {each.data_ptr(): each for each in sources}.values()
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
            for one in blocks:
                one.target.copy_(buffer[one.at : one.at + one.size], non_blocking=True)
            if event is not None:
                event.record()
    if is_gpu:  # The buffers, and the file that was mapped, can go.
        torch.cuda.current_stream().synchronize()


def _fill(buffer: int, block: _Block) -> None:
    ctypes.memmove(buffer + block.at, block.source, block.size)


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
