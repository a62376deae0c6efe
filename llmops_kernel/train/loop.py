"""The worker loop: from a config and a context to a trained model. Knows no Ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import PrinterCallback, set_seed

from llmops_kernel.config.train import TrainingConfig
from llmops_kernel.metrics.events import PhaseEvent, StartEvent, WarningEvent
from llmops_kernel.train import device, model, output
from llmops_kernel.train.arguments import training_arguments
from llmops_kernel.train.callbacks import JournalCallback
from llmops_kernel.train.collate import Collator
from llmops_kernel.train.context import StopRequestedError, WorkerContext
from llmops_kernel.train.data import Dataset, load_dataset
from llmops_kernel.train.evaluate import Evaluator
from llmops_kernel.train.hooks import Hooks, call, load_hooks
from llmops_kernel.train.keeping import resume_path
from llmops_kernel.train.meter import StepMeter
from llmops_kernel.train.ops import compile_ops, needed
from llmops_kernel.train.sources import find
from llmops_kernel.train.trainer import LoopTrainer
from llmops_kernel.train.versions import installed_versions
from llmops_kernel.train.work import flops_counter


@dataclass(frozen=True)
class Outcome:
    last_step: int
    stopped: bool
    """Ended early because the user asked; a checkpoint was saved."""


def train(config: TrainingConfig, context: WorkerContext) -> Outcome:
    """Run one training on this worker; all workers of the group call it alike.

    Raises TrainingError's family for what the user can mend; anything else as it comes.
    """
    set_seed(config.seed)
    if not context.use_gpu:
        device.use_cpu_threads(context.local_world_size)
    hooks = load_hooks(_hooks_file(config, context))
    with context.phase("process_group"):
        # Joining asks for them; compiled here, a killed compilation cannot block this one.
        compile_ops(needed(config, use_gpu=context.use_gpu))
        # Before the model: ZeRO-3 shards weights while they are loaded, and looks here for how.
        arguments = training_arguments(config, folder=context.folder, use_gpu=context.use_gpu)
        _ = arguments.device
        _join_deepspeed(arguments)
    _check_stop(context, arguments.device)
    source = model.model_source(config.model.id, roots=_roots(context), cache=context.cache)
    with context.phase("data"):
        tokenizer = model.load_tokenizer(source, config)
        data = load_dataset(config, tokenizer=tokenizer, hooks=hooks, context=context)
    _check_stop(context, arguments.device)
    with context.phase("model_load"):
        network = model.load_model(source, config, hooks)
    _check_stop(context, arguments.device)
    return _fit(config, context, _Parts(hooks, tokenizer, data, network, arguments))


def _join_deepspeed(arguments: Any) -> None:
    """Tell DeepSpeed of the process group there is.

    On a CPU Accelerate does not, and ZeRO-3 would take the world for one worker when it shards
    the weights while loading them.
    """
    if arguments.deepspeed and dist.is_available() and dist.is_initialized():
        import deepspeed

        deepspeed.init_distributed(dist_backend=dist.get_backend(), verbose=False)


def _check_stop(context: WorkerContext, where: torch.device) -> None:
    """Leave together before the first step; raises StopRequestedError on every worker."""
    asked = torch.tensor([int(context.is_main and context.stop_requested())], device=where)
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.broadcast(asked, src=0)
    if asked.item():
        raise StopRequestedError


@dataclass(frozen=True)
class _Parts:
    hooks: Hooks
    tokenizer: Any
    data: Dataset
    network: Any
    arguments: Any


def _fit(config: TrainingConfig, context: WorkerContext, parts: _Parts) -> Outcome:
    context.emit(PhaseEvent(name="engine", state="begin"))
    meter = StepMeter()
    collator = Collator(pad_token_id=parts.tokenizer.pad_token_id)
    evaluator = _evaluator(config, context, parts, collator)
    trainer = LoopTrainer(
        model=parts.network,
        args=parts.arguments,
        train_dataset=parts.data.train,
        data_collator=collator,
        processing_class=parts.tokenizer,
        meter=meter,
        evaluate_with=evaluator,
        callbacks=list(call(parts.hooks.callbacks)) if parts.hooks.callbacks else None,
    )
    journal = _journal_callback(config, context, parts, meter)
    # It would print each step to the log, twice under Ray; the journal has them.
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(journal)
    journal.engine = lambda: type(trainer.model_wrapped).__name__
    if evaluator is not None:
        evaluator.accelerator = trainer.accelerator
    resume = resume_path(context)
    parts.arguments.eval_on_start = bool(
        evaluator and config.evaluation.at_start and resume is None
    )
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    step = trainer.state.global_step
    if not journal.stopped:
        metrics = (
            evaluator(trainer.model_wrapped, step) if evaluator and config.evaluation.at_end else {}
        )
        _save(config, context, parts, trainer, metrics)
    return Outcome(last_step=step, stopped=journal.stopped)


def _save(
    config: TrainingConfig, context: WorkerContext, parts: _Parts, trainer: Any, metrics: Any
) -> None:
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    figures = {
        "steps": trainer.state.global_step,
        "rows": len(parts.data.rows),
        "last training loss": history[-1]["loss"] if history else None,
        **metrics,
    }
    with context.phase("save"):
        output.save(
            trainer, tokenizer=parts.tokenizer, config=config, context=context, figures=figures
        )
        if dist.is_available() and dist.is_initialized():
            # No worker may leave (and end the group) while rank 0 still writes.
            dist.barrier()


def _evaluator(
    config: TrainingConfig, context: WorkerContext, parts: _Parts, collator: Collator
) -> Evaluator | None:
    if not parts.data.eval:
        return None
    return Evaluator(
        examples=parts.data.eval,
        prompts=parts.data.prompts,
        tokenizer=parts.tokenizer,
        collator=collator,
        hooks=parts.hooks,
        config=config,
        context=context,
    )


def _journal_callback(
    config: TrainingConfig, context: WorkerContext, parts: _Parts, meter: StepMeter
) -> JournalCallback:
    counted = model.count_parameters(parts.network)
    flops_of = flops_counter(parts.network, config=config, counted=counted)
    if flops_of is None:
        context.emit(
            WarningEvent(
                message="FLOPs and MFU are unknown for this model's architecture.",
                remedy="they show as a dash; steps, loss and tokens per second are not affected",
            )
        )
    return JournalCallback(
        context,
        config=config,
        meter=meter,
        start=_start_event(config, context, parts, counted),
        flops_of=flops_of or (lambda tokens, squares: None),
    )


def _start_event(
    config: TrainingConfig, context: WorkerContext, parts: _Parts, counted: model.ParameterCount
) -> StartEvent:
    found = None
    if context.is_main:
        found = device.describe(
            use_gpu=context.use_gpu, dtype=config.model.dtype, cache_root=context.cache
        )
    if dist.is_available() and dist.is_initialized():
        # The other workers wait, so that a first measurement of the CPU is not disturbed.
        dist.barrier()
    return StartEvent(
        total_steps=0,
        num_workers=context.world_size,
        global_batch_size=config.training.global_batch_size,
        device=found.name if found else "",
        dtype=config.model.dtype,
        peak_flops=found.peak_flops if found else None,
        peak_source=found.peak_source if found else "",
        num_params=counted.total,
        num_trainable=counted.trainable,
        num_rows=len(parts.data.rows),
        num_eval_rows=len(parts.data.eval),
        num_tokens=parts.data.num_tokens,
        node_ids=(context.node_id,) if context.node_id else (),
        hosts=(context.host,) if context.host else (),
        versions=installed_versions(),
    )


def _roots(context: WorkerContext) -> tuple[Path, ...]:
    return (context.workspace, *context.fallback_workspaces)


def _hooks_file(config: TrainingConfig, context: WorkerContext) -> Path | None:
    name = config.hooks.file
    if name is None:
        return None
    # Only from the workspace that travelled: the client's own copy may have changed since.
    return find(name, (context.workspace,)) or context.workspace / name
