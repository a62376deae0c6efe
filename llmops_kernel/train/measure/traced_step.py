"""Runs two training steps on tensors without memory, and replays what they allocate.

The second of the planner's two estimates: the model, the method's adapters, autocast,
checkpointing and the optimizer are the real ones, so that it knows what a formula may miss. One
worker without sharding, plain texts, a label at each token.
`python -m llmops_kernel.train.measure.traced_step` reads a job from stdin and prints the result.
"""

from __future__ import annotations

import json
import sys
import weakref
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from llmops_kernel.config.models.parallelism import ZeroStrategy
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError
from llmops_kernel.train.model.load import prepare, storage_dtype


@dataclass(frozen=True)
class Trace:
    """Most bytes over two steps."""

    total: int
    """Of all tensors."""
    reserved: int
    """That PyTorch's allocator for GPUs would take from the driver for them."""


class Allocations(TorchDispatchMode):
    """Follows the memory of tensors that operations make, until it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.total = 0
        self._sizes: dict[int, int] = {}
        self._now = 0

    def add(self, tensor: torch.Tensor) -> None:
        """Add a tensor's memory, once; it is taken off when it is freed."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._sizes:
            size = storage.nbytes()
            self._sizes[key] = size
            self._now += size
            self.events.append((key, size))
            weakref.finalize(storage, self._freed, key)
        self.total = max(self.total, self._now)

    def _freed(self, key: int) -> None:
        self._now -= self._sizes.pop(key)
        self.events.append((key, 0))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for value in tree_iter(results):
            if isinstance(value, torch.Tensor):
                self.add(value)
        return results


def trace(config: TrainingConfig, model_config: Mapping[str, Any], *, steps: int = 2) -> Trace:
    """Return what a worker of a training allocates. Raises ConfigError for what cannot be traced.

    `model.dtype` must be one, not `auto`.
    """
    if config.objective.worker_side or config.method.needs:
        raise ConfigError(
            f"A step of objective {config.objective.type} with method {config.method.type} cannot"
            " be traced.",
            remedy="plan it without --trace",
        )
    model = _model(config, model_config)
    allocations = Allocations()
    with FakeTensorMode(allow_non_fake_inputs=True):
        _materialise(model, allocations)
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(trained, fused=True)
        shape = (config.micro_batch_size, config.data.max_length)
        batch = {
            "input_ids": torch.zeros(shape, dtype=torch.long),
            "attention_mask": torch.ones(shape, dtype=torch.long),
            "labels": torch.zeros(shape, dtype=torch.long),
        }
        with allocations:
            for _ in range(steps):
                for _ in range(min(2, config.gradient_accumulation_steps)):
                    with _autocast(config):
                        loss = model(**batch).loss
                    loss.backward()
                    del loss
                optimizer.step()
                optimizer.zero_grad()
    reserved = replay(allocations.events).reserved
    return Trace(allocations.total, reserved)


def _model(config: TrainingConfig, model_config: Mapping[str, Any]) -> Any:
    values = dict(model_config)
    settings = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    attention = config.model.attention
    chosen = None if attention == "auto" else attention
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            settings, dtype=storage_dtype(config), attn_implementation=chosen
        )
        model.config.use_cache = False
        model = prepare(model, config)
        if isinstance(config.parallelism, ZeroStrategy) and config.model.dtype == "bfloat16":
            model = model.bfloat16()  # As DeepSpeed does, adapters too.
    if config.parallelism.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def _materialise(model: Any, allocations: Allocations) -> None:
    """Give weights and buffers of `meta` a device, still without memory; tied ones stay tied."""
    replaced: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if id(weight) not in replaced:
                    replaced[id(weight)] = torch.nn.Parameter(
                        torch.empty(weight.shape, dtype=weight.dtype),
                        requires_grad=weight.requires_grad,
                    )
                    allocations.add(replaced[id(weight)])
                module._parameters[name] = replaced[id(weight)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
                allocations.add(module._buffers[name])


def _autocast(config: TrainingConfig) -> AbstractContextManager[Any]:
    is_plain = config.model.dtype == "float32" or isinstance(config.parallelism, ZeroStrategy)
    return nullcontext() if is_plain else torch.autocast("cpu", torch.bfloat16)


# --- PyTorch's caching allocator for GPUs, as far as it decides how much memory is reserved ---

# After c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.13 with its default settings: requests are
# rounded up, small and large ones have pools of their own, and each takes the best fitting free
# block of its pool, or asks the driver for a segment. One stream; expandable segments, garbage
# collection and other settings are not modelled.

_ROUND: Final = 512
_SMALL: Final = 2**20
"""Largest request of the small pool."""
_SMALL_SEGMENT: Final = 2 * 2**20
_LARGE_SEGMENT: Final = 20 * 2**20
"""Segment of requests between 1 and 10 MiB; larger ones get their own, rounded to 2 MiB."""
_OWN_SEGMENT: Final = 10 * 2**20

Event = tuple[Hashable, int]
"""A block's name, and its bytes: positive when it is made, anything else when it is freed."""


@dataclass(eq=False)
class _Block:
    size: int
    address: int
    segment: int
    is_small: bool
    is_free: bool = True
    before: _Block | None = None
    after: _Block | None = None


@dataclass(frozen=True)
class Replay:
    """What an allocator holds at most: in use, and reserved from the driver."""

    allocated: int
    reserved: int


def replay(events: Iterable[Event]) -> Replay:
    """Return the most bytes that are in use and reserved over a series of events."""
    allocator = _Allocator()
    for name, size in events:
        if size > 0:
            allocator.take(name, size)
        else:
            allocator.give(name)
    return Replay(allocator.most_allocated, allocator.reserved)


class _Allocator:
    def __init__(self) -> None:
        self._blocks: dict[Hashable, _Block] = {}
        self._free: dict[bool, list[tuple[int, int, _Block]]] = {True: [], False: []}
        self._segments = 0
        self._allocated = 0
        self.most_allocated = 0
        self.reserved = 0

    def take(self, name: Hashable, request: int) -> None:
        size = max(_ROUND, -(-request // _ROUND) * _ROUND)
        is_small = size <= _SMALL
        block = self._best(size, is_small) or self._segment(size, is_small)
        self._split(block, size)
        block.is_free = False
        self._blocks[name] = block
        self._allocated += block.size
        self.most_allocated = max(self.most_allocated, self._allocated)

    def give(self, name: Hashable) -> None:
        block = self._blocks.pop(name, None)
        if block is None:
            return
        self._allocated -= block.size
        block.is_free = True
        for other in (block.before, block.after):
            if other is not None and other.is_free:
                self._remove(other)
                block = _joined(block, other)
        self._add(block)

    def _best(self, size: int, is_small: bool) -> _Block | None:
        """Return the smallest free block that is large enough, out of its pool."""
        pool = self._free[is_small]
        index = bisect_left(pool, (size, -1), key=lambda entry: entry[:2])
        return pool.pop(index)[2] if index < len(pool) else None

    def _segment(self, size: int, is_small: bool) -> _Block:
        if is_small:
            whole = _SMALL_SEGMENT
        elif size < _OWN_SEGMENT:
            whole = _LARGE_SEGMENT
        else:
            whole = -(-size // _SMALL_SEGMENT) * _SMALL_SEGMENT
        self._segments += 1
        self.reserved += whole
        return _Block(whole, 0, self._segments, is_small)

    def _split(self, block: _Block, size: int) -> None:
        """Leave what remains of a block to others, if it is worth it."""
        remaining = block.size - size
        if not (remaining >= _ROUND if block.is_small else remaining > _SMALL):
            return
        rest = _Block(remaining, block.address + size, block.segment, block.is_small)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self._add(rest)

    def _add(self, block: _Block) -> None:
        key = (block.size, block.segment * 2**48 + block.address, block)
        insort(self._free[block.is_small], key, key=lambda entry: entry[:2])

    def _remove(self, block: _Block) -> None:
        pool = self._free[block.is_small]
        key = (block.size, block.segment * 2**48 + block.address)
        del pool[bisect_left(pool, key, key=lambda entry: entry[:2])]


def _joined(block: _Block, other: _Block) -> _Block:
    """Return one block of two that are beside each other."""
    first, second = (block, other) if block.address < other.address else (other, block)
    first.size += second.size
    first.after = second.after
    if second.after is not None:
        second.after.before = first
    first.is_free = True
    return first


def main() -> None:
    """Trace the job on stdin: a config and its model's config.json."""
    job = json.load(sys.stdin)
    config = TrainingConfig.model_validate(job["config"])
    print(json.dumps(asdict(trace(config, job["model_config"]))))


if __name__ == "__main__":
    main()
