"""Tries micro batches: whole steps of the run's longest rows, in workers that end with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import psutil
import torch
from transformers import PrinterCallback, TrainerCallback

from llmops_kernel.config.less_memory import changed
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.collectives import barrier, from_main
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.dataset import Dataset, all_rows
from llmops_kernel.train.data.examples import IGNORED, Example, Packed
from llmops_kernel.train.hooks import call
from llmops_kernel.train.loop import TrainingSession
from llmops_kernel.train.measure.start import planned_micro_batch
from llmops_kernel.train.measure.step_timer import StepTimer
from llmops_kernel.train.model.load import count_parameters
from llmops_kernel.train.model.tokenizer import KeepAfterFirstStep
from llmops_kernel.train.trainer import LoopTrainer

Note = Callable[[int, int], object]
"""Called on rank 0 with the size that it began with, and the largest whose steps all ranks have
made; 0 once they have made the first step, of one row."""

_STEPS = 2
"""Of a size: a run's second step finds the memory as its first has left it."""
_SPARE_OF_GPU, _SPARE_OF_PROCESS = 0.01, 0.02
"""Held back while sizes are tried, of a GPU's memory or of what a process on the CPU has: the need
of equal steps differs by some MiB from one process to the next."""
_PASSES = 2
"""Of a step: with the second the first one's gradients are there, as with any further one."""


@dataclass(frozen=True)
class Sizes:
    """Micro batches to try in ascending order, each with two steps."""

    all: Sequence[int]
    begin: int | None
    """The first to try; None: the largest that the plan says will fit."""
    rows: int
    """Of a worker's step: a micro batch of so many has one pass."""

    def chosen(self, planned: int | None) -> list[int]:
        """Return those to try. `planned`: the largest that the planner expects to fit, if known."""
        begin = self.begin
        if begin is None:
            begin = max((size for size in self.all if size <= (planned or 0)), default=self.all[0])
        return [size for size in self.all if size >= begin]


def probe(config: TrainingConfig, context: WorkerContext, sizes: Sizes, note: Note) -> None:
    """Make two steps with each size; all workers of the process group call it alike.

    Raises StopRequestedError, and what a training raises, as when memory runs out.
    """
    ProbeSession(config, context, sizes, note).try_sizes()


class ProbeSession(TrainingSession):
    """A training whose steps have growing micro batches; it evaluates, saves and journals nothing.

    Its first step has one row in each pass: only after it are there optimizer states.
    """

    def __init__(
        self, config: TrainingConfig, context: WorkerContext, sizes: Sizes, note: Note
    ) -> None:
        super().__init__(_probed(config), context)
        self._sizes, self._note = sizes, note

    def try_sizes(self) -> None:
        """Load all that the run will load, and train."""
        self.prepare_process()
        self.join_group()
        self.check_stop()
        self.resume = None
        self.load_data()
        self._keep_longest()
        self.check_stop()
        self.load_model()
        self.check_stop()
        self._build()
        self.trainer.train()

    def _keep_longest(self) -> None:
        """Put the rows to try in place of all rows; of streamed ones the longest possible."""
        if self.data.stream is None:
            kept = _longest_and_shortest(all_rows(self.data))
        else:
            self.data.stream.rows.close()
            kept = _made_up(self.data, self.config.data.max_length)
        self.data = replace(self.data, train=kept, stream=None)

    def _build(self) -> None:
        self.choose_settings()
        sizes = self._sizes.chosen(from_main(self._planned()))
        self.arguments.max_steps = 1 + _STEPS * len(sizes)
        self.arguments.train_sampling_strategy = "sequential"
        self.arguments.dataloader_num_workers = 0
        self.arguments.dataloader_drop_last = False
        steps = (self._step(size) for size in sizes for _ in range(_STEPS))
        batches = chain(self._step(1), *steps)
        self.trainer = self._prober([*batches])
        if self.config.objective.has_reference:
            self._add_reference()
        self.trainer.add_callback(_AfterStep(self.context, sizes, self._note))

    def _planned(self) -> int | None:
        """Return the largest micro batch that the planner expects to fit; None: not known."""
        if not self.context.is_main or self._sizes.begin is not None:
            return None
        if self.context.use_gpu:
            memory = torch.cuda.get_device_properties(self.arguments.device).total_memory
        else:
            memory = psutil.virtual_memory().available // self.context.local_world_size
        return planned_micro_batch(
            self.config,
            self.context,
            self.data,
            network=self.model,
            parameters=count_parameters(self.model),
            chosen=self.chosen,
            memory_bytes=memory,
        )

    def _step(self, size: int) -> Iterable[list[Example | Packed]]:
        """Yield the micro batches of one step, as Accelerate deals them to the workers in turn."""
        longest, shortest = self.data.train[0], self.data.train[1]
        # A step of one pass holds no gradients while it computes activations.
        is_whole = size == self._sizes.rows and size > 1
        for rows in ([longest] * size, [shortest] if is_whole else [longest] * size):
            for _ in range(self.context.world_size):
                yield rows

    def _prober(self, batches: list[list[Example | Packed]]) -> LoopTrainer:
        collate: Any = self._collator(padding_free=self.chosen.padding_free)
        trainer = LoopTrainer(
            model=self.model,
            args=self.arguments,
            train_dataset=batches,
            data_collator=lambda items: collate([row for rows in items for row in rows]),
            processing_class=self.tokenizer,
            timer=StepTimer(on_gpu=self.context.use_gpu),
            objective=self.objective,
            has_blank_rows=True,  # Each worker has as many micro batches as the others.
            optimizer_config=self.config.optimizer,
            callbacks=list(call(self.hooks.callbacks)) if self.hooks.callbacks else None,
        )
        trainer.add_callback(KeepAfterFirstStep(self.tokenizer_cache))
        trainer.remove_callback(PrinterCallback)
        return trainer


class _AfterStep(TrainerCallback):
    """Notes a size once all ranks have made its steps."""

    def __init__(self, context: WorkerContext, sizes: Sequence[int], note: Note) -> None:
        self._context, self._sizes, self._note = context, sizes, note
        self._spare: torch.Tensor | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait for the others: a rank may run out of memory in the optimizer's step alone."""
        barrier()
        tried, unfinished = divmod(state.global_step - 1, _STEPS)
        if unfinished:
            return
        if self._context.is_main:
            self._note(self._sizes[0], self._sizes[tried - 1] if tried else 0)
        if self._spare is None:
            self._spare = self._hold(args.device)
        if self._context.use_gpu:
            torch.cuda.empty_cache()  # The run's allocator has had no smaller batches before.

    def _hold(self, device: torch.device) -> torch.Tensor:
        """Take memory that the run shall have to spare. Raises when there is none."""
        if self._context.use_gpu:
            size = torch.cuda.get_device_properties(device).total_memory * _SPARE_OF_GPU
        else:
            size = psutil.Process().memory_info().rss * _SPARE_OF_PROCESS
        return torch.ones(int(size), dtype=torch.uint8, device=device)


def _probed(config: TrainingConfig) -> TrainingConfig:
    """Return the config of steps with one item in each pass, without what is beside the steps."""
    workers = config.parallelism.num_workers
    return changed(
        config,
        {
            "training.micro_batch_size": 1,
            "training.global_batch_size": _PASSES * workers,
            "training.max_steps": 1,
            "data.eval": None,
            "evaluation.every_steps": None,
            "evaluation.at_start": False,
            "evaluation.generate": False,
            "evaluation.prompts": [],
            "checkpoint.every_steps": None,
            "report_to": [],
        },
    )


def _longest_and_shortest(rows: Sequence[Example | Packed]) -> list[Example | Packed]:
    """Return the row with most tokens, of several that with most labels, and a short one."""

    def size(number: int) -> tuple[int, int]:
        row = rows[number]
        return len(row.input_ids), len(row.labels) - row.labels.count(IGNORED)

    sizes = [(*size(number), number) for number in range(len(rows))]
    return [rows[max(sizes)[2]], rows[min(sizes)[2]]]


def _made_up(data: Dataset, length: int) -> list[Example | Packed]:
    """Return a row of the greatest length, and a short one, of any token and all with labels."""
    token = data.sample[0].input_ids[-1]
    return [Example([token] * size, [token] * size) for size in (length, 2)]
