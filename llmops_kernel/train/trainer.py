"""Transformers' Trainer with our arguments, token counts, evaluation and NaN handling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from llmops_kernel.config.models.sections import OptimizerConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError
from llmops_kernel.train.data.examples import Example, Packed, blank_like
from llmops_kernel.train.data.mixture import MixedRows
from llmops_kernel.train.data.stream.schedule import StreamSchedule
from llmops_kernel.train.divergence import StepBatches
from llmops_kernel.train.measure.step_timer import StepTimer
from llmops_kernel.train.objectives.objective import Objective
from llmops_kernel.train.parallelism.strategy import strategy
from llmops_kernel.train.performance import Grouping


def training_arguments(config: TrainingConfig, *, folder: Path, use_gpu: bool) -> TrainingArguments:
    """Build TrainingArguments; for ZeRO-3 this must come before the model. Raises ConfigError."""
    try:
        return TrainingArguments(**_arguments(config, folder, use_gpu))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"Transformers refuses these training arguments: {error}",
            remedy="check training_arguments, model.dtype and parallelism in the config",
        ) from error


def _arguments(config: TrainingConfig, folder: Path, use_gpu: bool) -> dict[str, Any]:
    arguments = {
        "output_dir": str(folder / "checkpoints"),
        "use_cpu": not use_gpu,
        "bf16": config.model.dtype == "bfloat16",
        "seed": config.seed,
        "report_to": "none",  # `trackers` reads the journal, in a process of its own.
        "run_name": config.name,
        # Every step is journalled; saving, evaluating and rotating are our callback's.
        "logging_strategy": "steps",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # a NaN loss must be seen, not smoothed over
        "save_strategy": "no",
        "eval_strategy": "no",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": use_gpu,
        "train_sampling_strategy": "random" if config.data.shuffle else "sequential",
        **_schedule(config),
        **_performance(config),
    }
    if config.parallelism.gradient_checkpointing:
        arguments["activation_checkpointing"] = True
        # The reentrant kind gives no gradient to adapters above frozen embeddings.
        arguments["activation_checkpointing_kwargs"] = {"use_reentrant": False}
    sharding = strategy(config).arguments(config, use_gpu=use_gpu)
    return {**arguments, **sharding, **config.training_arguments}


def _performance(config: TrainingConfig) -> dict[str, Any]:
    performance = config.performance
    arguments: dict[str, Any] = {}
    if performance.compile:
        arguments["torch_compile"] = True
    if performance.tf32:
        arguments["tf32"] = True
    if performance.fused_loss:
        arguments["use_liger_kernel"] = True
        # Only the loss: Liger's other kernels would replace what was not asked for.
        off = ("rope", "rms_norm", "swiglu", "geglu", "layer_norm", "cross_entropy")
        arguments["liger_kernel_config"] = {
            **dict.fromkeys(off, False),
            "fused_linear_cross_entropy": True,
        }
    return arguments


def _schedule(config: TrainingConfig) -> dict[str, Any]:
    training, optimizer = config.training, config.optimizer
    return {
        "per_device_train_batch_size": config.micro_batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "num_train_epochs": training.num_epochs,
        "max_steps": training.max_steps or -1,
        "learning_rate": optimizer.learning_rate,
        **({"optim": _OPTIM[optimizer.type]} if optimizer.type in _OPTIM else {}),
        "lr_scheduler_type": optimizer.lr_scheduler_type,
        "warmup_steps": config.warmup_steps,
        "weight_decay": optimizer.weight_decay,
        "adam_beta1": optimizer.adam_beta1,
        "adam_beta2": optimizer.adam_beta2,
        "max_grad_norm": optimizer.max_grad_norm,
    }


_OPTIM = {"adamw_8bit": "adamw_bnb_8bit", "adafactor": "adafactor"}
"""Transformers' names; `muon` is not among its optimizers."""


# --- Transformers' Trainer with our token counts, evaluation and handling of NaN gradients ---


class EpochOfMixture(TrainerCallback):
    """Tells the rows of a mixture which epoch begins, or is resumed."""

    def __init__(self, rows: MixedRows[Any]) -> None:
        self._rows = rows

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Choose the rows before any of the epoch is read; a resumed epoch has a fraction."""
        self._rows.set_epoch(int(state.epoch or 0))


class FilledRows(Sequence[Example | Packed]):
    """Rows in memory, and a blank one at each number beyond them."""

    def __init__(self, rows: Sequence[Example | Packed]) -> None:
        self._rows = rows
        self._blank = blank_like(rows[0])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: Any) -> Any:
        return self._rows[number] if number < len(self._rows) else self._blank


class FilledSampler(torch.utils.data.Sampler[int]):
    """The numbers of another sampler, then numbers beyond all rows, up to a multiple."""

    def __init__(self, sampler: Any, *, multiple: int) -> None:
        self._sampler = sampler
        self._multiple = multiple

    def __len__(self) -> int:
        return -(-len(self._sampler) // self._multiple) * self._multiple

    def __iter__(self) -> Iterator[int]:
        yield from self._sampler
        yield from range(len(self._sampler), len(self))

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, where the other sampler has one for each."""
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)


class LoopTrainer(Trainer):
    """Overrides eleven methods of Transformers 5.23's Trainer; everything else is upstream's."""

    def __init__(
        self,
        *args: Any,
        timer: StepTimer,
        evaluate_with: Callable[[Any, int], dict[str, float]] | None = None,
        skip_nan_steps: bool = False,
        group: Grouping | None = None,
        has_blank_rows: bool = False,
        objective: Objective | None = None,
        optimizer_config: OptimizerConfig | None = None,
        **kwargs: Any,
    ) -> None:
        if group is not None:  # batches stay rows until those of a whole step are known
            kwargs["data_collator"] = list
        super().__init__(*args, **kwargs)
        self._optimizer_config = optimizer_config or OptimizerConfig()
        self._objective = objective
        if objective is not None:
            self.loss_is_scaled_for_ga = True  # By the counts of `get_batch_samples`.
        if isinstance(self.train_dataset, MixedRows):
            self.add_callback(EpochOfMixture(self.train_dataset))
        self._group = group
        self._timer = timer
        self._evaluate_with = evaluate_with
        self._skip_nan_steps = skip_nan_steps
        self._has_blank_rows = has_blank_rows  # of its own, as streamed rows have
        self._schedule: StreamSchedule | None = None
        self.first_inputs: dict[str, Any] | None = None
        """The first micro batch; whoever has used it sets an empty one."""
        self.step_batches = StepBatches()

    def follow(self, schedule: StreamSchedule) -> None:
        """Take the learning rate from streamed rows with which the training ends."""
        self._schedule = schedule

    @property
    def has_objective(self) -> bool:
        """Return whether the loss is not the model's own."""
        return self._objective is not None

    @property
    def num_repeated(self) -> int:
        """Return rows of an epoch that are trained on twice, so that all workers have equally many.

        0 but for a model that divides its loss by its own count of labels: a micro batch of blank
        rows would have none.
        """
        own_loss = self._objective is None and not self.model_accepts_loss_kwargs
        if not self._is_uneven() or not own_loss:
            return 0
        return -len(self.train_dataset) % (self._train_batch_size * self.accelerator.num_processes)

    def _is_uneven(self) -> bool:
        return (
            self.accelerator.num_processes > 1
            and not self.args.dataloader_drop_last
            and not self._has_blank_rows
        )

    def get_train_dataloader(self) -> Any:
        """End an epoch with blank rows where workers have fewer rows than others.

        Upstream gives them rows from the epoch's beginning once more. A blank row changes neither
        the sum of the loss nor the number that it is divided by; and each worker still takes part
        in what all do together.
        """
        if not self._is_uneven() or self.num_repeated:
            return super().get_train_dataloader()
        loader = self._get_dataloader(
            dataset=FilledRows(self.train_dataset),
            description="Training",
            batch_size=self._train_batch_size,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )
        # Below Accelerate's, which deals its batches to the workers in turn.
        batches = getattr(loader.batch_sampler, "batch_sampler", loader.batch_sampler)
        workers = 1 if self.accelerator.split_batches else self.accelerator.num_processes
        batches.sampler = FilledSampler(batches.sampler, multiple=batches.batch_size * workers)
        return loader

    def create_optimizer(self, model: Any = None) -> Any:
        """Make Muon, which Transformers does not have, or what upstream makes."""
        settings = self._optimizer_config
        current: Any = getattr(self, "optimizer", None)
        if settings.type == "muon" and current is None:
            self.optimizer = MuonWithAdamW(
                self.model if model is None else model,
                lr=settings.learning_rate,
                betas=(settings.adam_beta1, settings.adam_beta2),
                weight_decay=settings.weight_decay,
            )
        return super().create_optimizer(model)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Let the learning rate follow the rows, where the number of steps is an estimate.

        DeepSpeed calls this on a copy of the Trainer, which has the same schedule.
        """
        if self.args.lr_scheduler_type == "warmup_stable_decay":
            num_decay_steps = max(1, round(self._optimizer_config.decay_share * num_training_steps))
            self.args.lr_scheduler_kwargs = {"num_decay_steps": num_decay_steps}
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        if self._schedule is not None and self._schedule not in scheduler.lr_lambdas:
            self._schedule.replace_in(scheduler, total=num_training_steps)
        return scheduler

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> Any:
        """Measure the wait for data and remove the token counts, then do as upstream."""
        self.step_batches.begin()
        batches = epoch_iterator
        if self._group is not None:
            batches = self._group.batches(epoch_iterator, num_batches)
        batches, items = super().get_batch_samples(self._timer.timed(batches), num_batches, device)
        if self._objective is not None and batches:
            items = torch.stack([self._objective.counts(batch) for batch in batches]).sum(0)
            items = self.accelerator.reduce(items.to(device), reduction="sum")
        # A step of blank rows only has a loss of 0 / 1 instead of 0 / 0.
        return batches, items.clamp(min=1) if torch.is_tensor(items) else items

    def training_step(
        self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Any:
        """Time the passes of a micro batch, then do as upstream. What follows is the optimizer's.

        DeepSpeed's optimizer steps in here and is timed by itself.
        """
        if self.first_inputs is None:
            self.first_inputs = inputs
        parts = self._timer.parts
        parts.enter("passes")
        loss = super().training_step(model, inputs, num_items_in_batch)
        parts.enter("between" if self.is_deepspeed_enabled else "optimizer")
        self.step_batches.add(inputs, loss)
        return loss

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Compute the loss of the objective, if it has one of its own."""
        if self._objective is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        terms = self._objective.terms(model, inputs)
        # DDP, FSDP and ZeRO average the gradients over the workers.
        return (terms / num_items_in_batch).sum().float() * self.accelerator.num_processes

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Return 0: the journal has its own count.

        Upstream counts padding, frozen weights as trained and no attention, and walks over all
        parameters at each micro batch.
        """
        return 0

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """Drop the gradients when their norm is not finite, so that the step changes nothing.

        The norm is that of the averaged gradients, so all workers decide alike. It is read from
        the device here, earlier than for the log, which costs a wait: only for on_nan=skip.
        DeepSpeed 0.19 needs none of this: it has skipped the step already, by the same rule.
        """
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if self._skip_nan_steps and norm is not None and not math.isfinite(float(norm)):
            model.zero_grad()
        return norm

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save tied weights once: as FSDP and DeepSpeed gather them, they are two tensors."""
        if state_dict is not None:
            tied = getattr(self.accelerator.unwrap_model(self.model), "all_tied_weights_keys", None)
            state_dict = {k: value for k, value in state_dict.items() if k not in (tied or {})}
        super()._save(output_dir, state_dict=state_dict)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Reset the summed loss for real: upstream subtracts it from itself, so NaN would stay."""
        self._tr_loss.zero_()
        super().log(logs, start_time)

    def _evaluate(
        self, trial: Any, ignore_keys_for_eval: Any, skip_scheduler: bool = False
    ) -> dict[str, float]:
        """Evaluate weighted by tokens, instead of upstream's mean of batch means."""
        if self._evaluate_with is None:
            return {}
        metrics = self._evaluate_with(self.model_wrapped, self.state.global_step)
        self._timer.mark()
        return metrics


# --- An optimizer that Transformers does not have ---


class MuonWithAdamW(torch.optim.Optimizer):
    """Steps PyTorch's Muon (kellerjordan.github.io/posts/muon, arxiv.org/abs/2502.16982) and AdamW.

    Muon takes weights of two dimensions but embeddings and output layers. Its updates have the size
    of AdamW's, so one learning rate serves both.
    """

    def __init__(
        self, model: nn.Module, *, lr: float, betas: tuple[float, float], weight_decay: float
    ) -> None:
        outer = {
            id(weight)
            for find in ("get_input_embeddings", "get_output_embeddings")
            for layer in [_layer(model, find)]
            if layer is not None
            for weight in layer.parameters()
        }
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        matrices = [weight for weight in trained if weight.ndim == 2 and id(weight) not in outer]
        others = [weight for weight in trained if weight.ndim != 2 or id(weight) in outer]
        super().__init__(trained, {"lr": lr})
        settings: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            muon = torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw", **settings)
            self._parts.append(muon)
        if others:
            self._parts.append(torch.optim.AdamW(others, betas=betas, **settings))
        self._share()

    def _share(self) -> None:
        """Show the groups and states of both: whoever changes a learning rate changes theirs."""
        self.param_groups = [group for part in self._parts for group in part.param_groups]
        self.state = {weight: state for part in self._parts for weight, state in part.state.items()}

    def step(self, closure: Any = None) -> None:
        """Update the weights by their gradients."""
        for part in self._parts:
            part.step(closure)
        self._share()

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share()


def _layer(model: Any, find: str) -> Any:
    try:
        return getattr(model, find)()
    except (AttributeError, NotImplementedError):
        return None
