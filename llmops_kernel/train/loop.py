"""The worker loop: trains a model from a config and a context. Does not use Ray."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import PrinterCallback, set_seed

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver.checkpoint import step_of
from llmops_kernel.metrics.events import PhaseEvent, StartEvent, WarningEvent
from llmops_kernel.models.answer_ends import set_answer_ends
from llmops_kernel.models.source import model_source
from llmops_kernel.store.files import find
from llmops_kernel.train.arguments import training_arguments
from llmops_kernel.train.callbacks import JournalCallback
from llmops_kernel.train.checkpoints import output
from llmops_kernel.train.checkpoints.compared import Trained
from llmops_kernel.train.checkpoints.resume import resume_path
from llmops_kernel.train.checkpoints.store import wait_for_hashes
from llmops_kernel.train.collectives import barrier, is_group
from llmops_kernel.train.context import StopRequestedError, WorkerContext
from llmops_kernel.train.data.collate import Collator
from llmops_kernel.train.data.dataset import Dataset, load_dataset
from llmops_kernel.train.data.identity import DataIdentity, division_of
from llmops_kernel.train.data.sources import fetch, is_hub_id
from llmops_kernel.train.data.stream.schedule import StreamSchedule
from llmops_kernel.train.deepspeed_ops import compile_for
from llmops_kernel.train.divergence import DivergenceGuard
from llmops_kernel.train.evaluation.evaluate import Evaluator
from llmops_kernel.train.hooks import Hooks, call, load_hooks
from llmops_kernel.train.measure import device
from llmops_kernel.train.measure.attention_kernel import kernels
from llmops_kernel.train.measure.expert_counts import ExpertCounts
from llmops_kernel.train.measure.step_flops import StepFlops
from llmops_kernel.train.measure.step_timer import StepTimer
from llmops_kernel.train.measure.versions import installed_versions
from llmops_kernel.train.model import load as model
from llmops_kernel.train.model.kept import Keeping
from llmops_kernel.train.model.origin import Origin, origin
from llmops_kernel.train.model.tokenizer import KeepAfterFirstStep, KeptTokenizer, too_large
from llmops_kernel.train.own_numbers import OwnNumbers, own_numbers
from llmops_kernel.train.parallelism.strategy import strategy
from llmops_kernel.train.performance.choose import (
    Chosen,
    Grouping,
    choose,
    resolve_dtype,
)
from llmops_kernel.train.performance.in_force import attention_names
from llmops_kernel.train.requirements import check_worker
from llmops_kernel.train.trainer import LoopTrainer
from llmops_kernel.train.verify import optimizer_state_words, verify


@dataclass(frozen=True)
class Outcome:
    last_step: int
    stopped: bool
    """The user stopped the run early; a checkpoint was saved."""


def train(config: TrainingConfig, context: WorkerContext) -> Outcome:
    """Run one training on this worker; all workers of the process group call it alike.

    Raises TrainingError or a subclass for what the user can fix, and other exceptions unchanged.
    """
    check_worker(config, use_gpu=context.use_gpu)
    config, precision = resolve_dtype(config, context)
    set_seed(config.seed)
    if not context.use_gpu:
        device.use_cpu_threads(context.local_world_size)
    hooks = load_hooks(_hooks_file(config, context))
    # Joining the group loads these operations: compiled before, they have a phase of their own
    # and a killed compilation cannot block this one.
    compile_for(config, context)
    with context.phase("process_group"):
        # Before the model: ZeRO-3 shards weights while they are loaded and reads its settings here.
        arguments = training_arguments(config, folder=context.folder, use_gpu=context.use_gpu)
        _ = arguments.device
        strategy(config).join(arguments)
    _check_stop(context, arguments.device)
    resume = resume_path(context)  # Before the data, which is divided as it was then.
    found = _origin(config, hooks, context)
    kept = KeptTokenizer.of(found.tokenizer, found.config, context)
    tokenizer = _from_hub(found, context, kept)
    with context.phase("data") as details:
        tokenizer = tokenizer or kept.tokenizer(found.tokenizer, found.config, details.append)
        given = {"tokenizer": tokenizer, "division": division_of(resume)}
        data = load_dataset(config, hooks=hooks, context=context, **given)
        details.append(data.detail)
    _check_stop(context, arguments.device)
    network = _network(found, hooks, context)
    set_answer_ends(network, tokenizer)  # It is saved with each checkpoint and the result.
    _check_stop(context, arguments.device)
    try:
        with own_numbers(is_main=context.is_main, warn=context.emit) as numbers:
            parts = _Parts(
                hooks, tokenizer, kept, data, network, arguments, precision, numbers, found
            )
            outcome = _fit(config, context, parts, resume)
    finally:
        if data.stream is not None:  # Its thread must not outlive the interpreter.
            data.stream.rows.close()
    return outcome


def _origin(config: TrainingConfig, hooks: Hooks, context: WorkerContext) -> Origin:
    roots = _roots(context)
    source = model_source(config.model.id, roots=roots, cache=context.cache)
    if hooks.build_model is not None:
        return Origin(source, config)
    return origin(source, config, roots=roots, cache=context.cache)


def _network(found: Origin, hooks: Hooks, context: WorkerContext) -> Any:
    with context.phase("model_load") as details:
        keeping = Keeping.of(found.weights, found.config, context)
        if found.adapter is not None:
            done = "trained further" if found.config.method.saves == "adapter" else "merged into it"
            details.append(f"base model {found.config.model.id}, its adapter is {done}")
        return model.load_model(
            found.weights,
            found.config,
            hooks,
            keeping=keeping,
            say=details.append,
            adapter=found.adapter,
        )


def _check_stop(context: WorkerContext, where: torch.device) -> None:
    """Raise StopRequestedError on every worker if a stop was requested before the first step."""
    asked = torch.tensor([int(context.is_main and context.stop_requested())], device=where)
    if is_group() and dist.get_world_size() > 1:
        dist.broadcast(asked, src=0)
    if asked.item():
        raise StopRequestedError


@dataclass(frozen=True)
class _Parts:
    hooks: Hooks
    tokenizer: Any
    kept: KeptTokenizer
    data: Dataset
    network: Any
    arguments: Any
    precision: str
    """Why it computes in `model.dtype`; empty if the config names the format."""
    numbers: OwnNumbers
    origin: Origin


def _fit(
    config: TrainingConfig, context: WorkerContext, parts: _Parts, resume: Path | None
) -> Outcome:
    _check_tokens(parts)
    context.emit(PhaseEvent(name="engine", state="begin"))
    timer, flops = StepTimer(), _step_flops(config, context, parts)
    chosen = choose(
        config,
        parts.network,
        parts.data.sample,
        precision=parts.precision,
        use_gpu=context.use_gpu,
    )
    evaluator = _evaluator(config, context, parts, _collator(parts, chosen, padding_free=False))
    guard = DivergenceGuard(context, config)
    evaluate = guard.checked(evaluator) if evaluator else None
    trainer = _trainer(config, parts, chosen, timer, evaluate)
    if repeated := trainer.num_repeated:
        context.emit(_repeats(repeated, type(parts.network).__name__))
    is_formatted = parts.hooks.format_example is not None
    identity = DataIdentity(parts.data, source=config.data.train_words, is_formatted=is_formatted)
    journal = _journal_callback(config, context, parts, timer, flops, guard, chosen, identity)
    _connect(journal, trainer, config, parts)
    if evaluator is not None:
        evaluator.accelerator = trainer.accelerator
    if resume is not None:
        identity.check(resume, context)
        if parts.data.stream is not None:
            parts.data.stream.progress.resume(resume, step_of(resume.name) or 0)
    _follow_rows(config, trainer, parts.data)
    parts.arguments.eval_on_start = bool(
        evaluator and config.evaluation.at_start and resume is None
    )
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    step = trainer.state.global_step
    if not journal.stopped:
        metrics = (
            evaluate(trainer.model_wrapped, step) if evaluate and config.evaluation.at_end else {}
        )
        guard.check_end(step)
        _save(config, context, parts, trainer, metrics)
    wait_for_hashes()
    if context.is_main and not context.use_gpu:
        journal.take_peak(device.raise_cpu_peak(config.model.dtype, context.cache))
    return Outcome(last_step=step, stopped=journal.stopped)


def _repeats(count: int, model_name: str) -> WarningEvent:
    return WarningEvent(
        message=f"Each epoch trains on {counted(count, 'row')} twice, so that all workers have as"
        f" many: {model_name} divides its loss itself, so blank rows cannot take their place.",
        remedy="let the model's forward take **kwargs and divide by num_items_in_batch, or give as"
        " many rows as fill the last step",
    )


def _check_tokens(parts: _Parts) -> None:
    """Raise ModelError for tokens without an embedding; each batch is checked when it is made."""
    prompts = (*parts.data.prompts, *parts.data.own_prompts)
    asked = (token for one in prompts for token in one.input_ids)
    if error := too_large(parts.tokenizer, model.count_embeddings(parts.network), asked):
        raise error


def _follow_rows(config: TrainingConfig, trainer: LoopTrainer, data: Dataset) -> None:
    """Give the steps, the order of the rows and the learning rate to the data, if streamed."""
    if data.stream is None:
        return
    trainer.args.max_steps = data.stream.total_steps
    trainer.args.train_sampling_strategy = "sequential"
    trainer.args.dataloader_num_workers = 0
    if data.stream.progress.ends_with_rows:
        by_progress = data.stream.is_estimate
        schedule = StreamSchedule(warmup=config.warmup_steps, by_progress=by_progress)
        trainer.schedule = data.stream.progress.schedule = schedule


def _trainer(
    config: TrainingConfig, parts: _Parts, chosen: Chosen, timer: StepTimer, evaluate: Any
) -> LoopTrainer:
    collator = _collator(parts, chosen, padding_free=chosen.padding_free)
    trainer = LoopTrainer(
        model=parts.network,
        args=parts.arguments,
        train_dataset=parts.data.train,
        data_collator=collator,
        processing_class=parts.tokenizer,
        timer=timer,
        evaluate_with=evaluate,
        skip_nan_steps=config.training.on_nan == "skip",
        group=Grouping(collator) if chosen.group_by_length else None,
        has_blank_rows=parts.data.stream is not None,
        callbacks=list(call(parts.hooks.callbacks)) if parts.hooks.callbacks else None,
    )
    trainer.add_callback(KeepAfterFirstStep(parts.kept))
    # It prints each step to the log, under Ray twice; the journal has the steps.
    trainer.remove_callback(PrinterCallback)
    return trainer


def _collator(parts: _Parts, chosen: Chosen, *, padding_free: bool) -> Collator:
    vocabulary = model.count_embeddings(parts.network)
    return Collator(
        too_large=partial(too_large, parts.tokenizer, vocabulary),
        vocabulary=vocabulary,
        pad_token_id=parts.tokenizer.pad_token_id,
        pad_to_multiple_of=chosen.pad_to_multiple_of,
        label_logits=chosen.label_logits,
        padding_free=padding_free,
    )


def _connect(journal: JournalCallback, trainer: Any, config: TrainingConfig, parts: _Parts) -> None:
    trainer.add_callback(journal)
    loaded = model.count_parameters(parts.network)
    is_own_model = parts.hooks.build_model is not None
    journal.engine = lambda: type(trainer.model_wrapped).__name__
    journal.verify = lambda: verify(trainer, config, loaded=loaded, is_own_model=is_own_model)
    journal.optimizer_states = lambda: optimizer_state_words(trainer)


def _save(
    config: TrainingConfig, context: WorkerContext, parts: _Parts, trainer: Any, metrics: Any
) -> None:
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    figures = {
        "steps": trainer.state.global_step,
        "rows": parts.data.num_rows,
        "last training loss": history[-1]["loss"] if history else None,
        **metrics,
    }
    is_own_model = parts.hooks.build_model is not None
    with context.phase("save") as details:
        details += output.save(
            trainer,
            tokenizer=parts.tokenizer,
            config=config,
            context=context,
            figures=figures,
            trained=Trained.of(
                trainer, parts.data.sample, is_own_model=is_own_model, what=config.method.saves
            ),
            origin=parts.origin,
        )
        # No worker may leave (and end the process group) while rank 0 still writes.
        barrier()


def _evaluates(parts: _Parts) -> bool:
    return bool(parts.data.eval or parts.data.own_prompts)


def _evaluator(
    config: TrainingConfig, context: WorkerContext, parts: _Parts, collator: Collator
) -> Evaluator | None:
    if not _evaluates(parts):
        return None
    return Evaluator(
        examples=parts.data.eval,
        prompts=parts.data.prompts,
        own_prompts=parts.data.own_prompts,
        tokenizer=parts.tokenizer,
        collator=collator,
        hooks=parts.hooks,
        config=config,
        context=context,
    )


def _step_flops(config: TrainingConfig, context: WorkerContext, parts: _Parts) -> StepFlops | None:
    """Count on rank 0, while the model is as it was loaded: the Trainer changes and wraps it."""
    if not context.is_main:
        return None
    network, where = parts.network, parts.arguments.device
    return StepFlops(
        network,
        checkpointing=config.parallelism.gradient_checkpointing,
        kernels=kernels(network, attention_names(network), config.model.dtype, where),
        cache=context.cache,
    )


def _journal_callback(
    config: TrainingConfig,
    context: WorkerContext,
    parts: _Parts,
    timer: StepTimer,
    flops: StepFlops | None,
    guard: DivergenceGuard,
    chosen: Chosen,
    identity: DataIdentity,
) -> JournalCallback:
    counted = model.count_parameters(parts.network)
    return JournalCallback(
        context,
        config=config,
        timer=timer,
        start=_start_event(config, context, parts, counted).model_copy(
            update={"performance": "; ".join((*chosen.words, *parts.data.words))}
        ),
        flops=flops,
        guard=guard,
        numbers=parts.numbers,
        # Hooks that count would break a compiled graph apart.
        experts=None if config.performance.compile else ExpertCounts.of(parts.network),
        stream=parts.data.stream.progress if parts.data.stream else None,
        data=identity,
    )


def _start_event(
    config: TrainingConfig, context: WorkerContext, parts: _Parts, counted: model.ParameterCount
) -> StartEvent:
    measured = None
    if context.is_main:
        measured = device.describe(
            use_gpu=context.use_gpu, dtype=config.model.dtype, cache_root=context.cache
        )
    # The other workers wait, so that a first measurement of the CPU is not disturbed.
    barrier()
    return StartEvent(
        total_steps=0,
        num_workers=context.world_size,
        global_batch_size=config.training.global_batch_size,
        device=measured.name if measured else "",
        dtype=config.model.dtype,
        peak_flops=measured.peak_flops if measured else None,
        peak_source=measured.peak_source if measured else "",
        num_params=counted.total,
        num_trainable=counted.trainable,
        evaluate_every=(config.evaluation.every_steps or 0) if _evaluates(parts) else 0,
        evaluates_at_end=config.evaluation.at_end and _evaluates(parts),
        save_every=config.checkpoint.every_steps or 0,
        num_rows=parts.data.num_rows or 0,
        num_eval_rows=len(parts.data.eval),
        num_tokens=parts.data.num_tokens or 0,
        num_skipped=parts.data.num_skipped,
        node_ids=(context.node_id,) if context.node_id else (),
        hosts=(context.host,) if context.host else (),
        versions=installed_versions(),
    )


def _from_hub(found: Origin, context: WorkerContext, kept: KeptTokenizer) -> Any:
    """Fetch what is on the hub, which may take minutes to answer: data sets and the tokenizer.

    Return the tokenizer; None if the model is on disk.
    """
    is_local = Path(found.tokenizer).is_dir()
    data = found.config.data
    named = [(one.path, one.train_split or data.train_split) for one in data.sources]
    named += [] if data.eval is None else [(data.eval, data.eval_split)]
    remote = [one for one in named if is_hub_id(one[0], _roots(context))]
    if is_local and not remote:
        return None
    with context.phase("hub") as details:
        for name, split in remote:
            fetch(name, split)
        return None if is_local else kept.tokenizer(found.tokenizer, found.config, details.append)


def _roots(context: WorkerContext) -> tuple[Path, ...]:
    return (context.workspace, *context.fallback_workspaces)


def _hooks_file(config: TrainingConfig, context: WorkerContext) -> Path | None:
    name = config.hooks.file
    if name is None:
        return None
    # Only from the submitted workspace: the client's own copy may have changed since.
    return find(name, (context.workspace,)) or context.workspace / name
