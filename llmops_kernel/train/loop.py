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
from llmops_kernel.errors import ModelError
from llmops_kernel.metrics.events import PhaseEvent, WarningEvent
from llmops_kernel.models.answer_ends import set_answer_ends
from llmops_kernel.models.source import model_source
from llmops_kernel.store.files import find
from llmops_kernel.train.callbacks import JournalCallback
from llmops_kernel.train.checkpoints import last_step, output
from llmops_kernel.train.checkpoints.output import Trained
from llmops_kernel.train.checkpoints.resume import resume_path
from llmops_kernel.train.checkpoints.store import wait_for_hashes
from llmops_kernel.train.collectives import barrier, is_group
from llmops_kernel.train.context import StopRequestedError, WorkerContext
from llmops_kernel.train.data.collate import Collator
from llmops_kernel.train.data.dataset import all_rows, load_dataset
from llmops_kernel.train.data.identity import DataIdentity, division_of
from llmops_kernel.train.data.sources import DataSources
from llmops_kernel.train.data.stream.schedule import StreamSchedule
from llmops_kernel.train.deepspeed_ops import compile_for
from llmops_kernel.train.divergence import DivergenceGuard
from llmops_kernel.train.evaluation import Evaluator
from llmops_kernel.train.hooks import call, load_hooks
from llmops_kernel.train.measure import device
from llmops_kernel.train.measure.expert_counts import ExpertCounts
from llmops_kernel.train.measure.profiler import StepProfiler
from llmops_kernel.train.measure.start import journal_inputs, start_event
from llmops_kernel.train.measure.step_flops import StepFlops
from llmops_kernel.train.measure.step_parts import EngineWatch
from llmops_kernel.train.measure.step_timer import StepTimer
from llmops_kernel.train.model import load as model
from llmops_kernel.train.model.kept import Keeping
from llmops_kernel.train.model.origin import Origin, merged_below, origin
from llmops_kernel.train.model.tokenizer import KeepAfterFirstStep, KeptTokenizer, too_large
from llmops_kernel.train.objectives.objective import GroupCollator, objective_of
from llmops_kernel.train.objectives.preference import Computed, KeepReference, Reference
from llmops_kernel.train.own_numbers import OwnNumbers, own_numbers
from llmops_kernel.train.parallelism.strategy import strategy
from llmops_kernel.train.performance import Grouping, choose, resolve_dtype
from llmops_kernel.train.requirements import check_worker
from llmops_kernel.train.trainer import LoopTrainer, training_arguments
from llmops_kernel.train.verify import attention_names, kernels, optimizer_state_words, verify


@dataclass(frozen=True)
class Outcome:
    last_step: int
    stopped: bool
    """The user stopped the run early; a checkpoint was saved."""


def train(config: TrainingConfig, context: WorkerContext) -> Outcome:
    """Run one training on this worker; all workers of the process group call it alike.

    Raises TrainingError or a subclass for what the user can fix, and other exceptions unchanged.
    """
    return TrainingSession(config, context).run()


class TrainingSession:
    """One training on this worker. Its methods stand in the order in which `run` calls them."""

    def __init__(self, config: TrainingConfig, context: WorkerContext) -> None:
        self.config, self.context = config, context

    def run(self) -> Outcome:
        """Train, evaluate and save."""
        self.prepare_process()
        self.join_group()
        self.check_stop()
        self.resume = resume_path(self.context)  # Before the data, which is divided as it was then.
        self.load_data()
        self.check_stop()
        self.load_model()
        self.check_stop()
        try:
            with own_numbers(is_main=self.context.is_main, warn=self.context.emit) as numbers:
                self.build_trainer(numbers)
                self.restore_rows()
                with last_step.saved_when_out_of_memory(self.trainer, self.context):
                    return self.train()
        finally:
            if self.data.stream is not None:  # Its thread must not outlive the interpreter.
                self.data.stream.rows.close()

    def prepare_process(self) -> None:
        """Settle the dtype, the seed and the user's hooks."""
        context = self.context
        check_worker(self.config, use_gpu=context.use_gpu)
        self.config, self.precision = resolve_dtype(self.config, context)
        set_seed(self.config.seed)
        if not context.use_gpu:
            device.use_cpu_threads(context.local_world_size)
        self.hooks = load_hooks(self._hooks_file())

    def _hooks_file(self) -> Path | None:
        name = self.config.hooks.file
        if name is None:
            return None
        # Only from the submitted workspace: the client's own copy may have changed since.
        return find(name, (self.context.workspace,)) or self.context.workspace / name

    def join_group(self) -> None:
        """Connect this worker with the others."""
        # Joining the group loads these operations: compiled before, they have a phase of their own
        # and a killed compilation cannot block this one.
        compile_for(self.config, self.context)
        with self.context.phase("process_group"):
            # Before the model: ZeRO-3 shards weights while they are loaded and reads its settings
            # here.
            self.arguments = training_arguments(
                self.config, folder=self.context.folder, use_gpu=self.context.use_gpu
            )
            _ = self.arguments.device
            strategy(self.config).join(self.arguments)

    def check_stop(self) -> None:
        """Raise StopRequestedError on every worker if a stop was requested before step 1."""
        stop = self.context.is_main and self.context.stop_requested()
        asked = torch.tensor([int(stop)], device=self.arguments.device)
        if is_group() and dist.get_world_size() > 1:
            dist.broadcast(asked, src=0)
        if asked.item():
            raise StopRequestedError

    def load_data(self) -> None:
        """Find the model, and load its tokenizer and the rows."""
        self.origin = self._find_origin()
        as_read = self.config.with_rows_read()
        sources = DataSources(as_read.data, self.context.roots)
        files, config = self.origin.tokenizer, self.origin.config
        self.tokenizer_cache = KeptTokenizer.of(files, config, self.context)
        tokenizer = self._fetch_from_hub(sources)
        with self.context.phase("data") as details:
            self.tokenizer = tokenizer or self.tokenizer_cache.tokenizer(
                files, config, details.append
            )
            self.data = load_dataset(
                as_read,
                sources,
                hooks=self.hooks,
                context=self.context,
                tokenizer=self.tokenizer,
                division=division_of(self.resume),
            )
            details.append(self.data.detail)
            self.objective = objective_of(self.config, self.tokenizer.pad_token_id)
            if self.objective is not None:
                rows: Any = all_rows(self.data)
                self.objective.prepare(rows, self.data.eval)  # type: ignore[arg-type]

    def _find_origin(self) -> Origin:
        config, roots, cache = self.config, self.context.roots, self.context.cache
        source = model_source(config.model.id, roots=roots, cache=cache)
        if self.hooks.build_model is not None:
            return Origin(source, config)
        start = origin(source, config, roots=roots, cache=cache)
        is_new = config.method.saves == "adapter" and config.model.adapter == "merge"
        if start.adapter is None or not is_new:
            return start
        with self.context.phase("merge"):
            return merged_below(start, self.context.folder / "base")

    def _fetch_from_hub(self, sources: DataSources) -> Any:
        """Fetch what is on the hub, which may take minutes to answer: data sets and the tokenizer.

        Return the tokenizer; None if the model is on disk.
        """
        files, config = self.origin.tokenizer, self.origin.config
        is_local = Path(files).is_dir()
        if is_local and not sources.on_hub:
            return None
        with self.context.phase("hub") as details:
            for source in sources.on_hub:
                source.fetch()
            if is_local:
                return None
            return self.tokenizer_cache.tokenizer(files, config, details.append)

    def load_model(self) -> None:
        """Load the weights, or build the model of the user's hook."""
        source = self.origin
        with self.context.phase("model_load") as details:
            keeping = Keeping.of(source.weights, source.config, self.context)
            if source.adapter is not None:
                is_kept = source.config.method.saves == "adapter"
                done = "trained further" if is_kept else "merged into it"
                details.append(f"base model {source.config.model.id}, its adapter is {done}")
            self.model = model.load_model(
                source.weights,
                source.config,
                self.hooks,
                keeping=keeping,
                say=details.append,
                adapter=source.adapter,
                options=self.objective.model_options() if self.objective else None,
            )
        if self.objective is not None:
            self.objective.check_model(self.model)
        set_answer_ends(self.model, self.tokenizer)  # Saved with each checkpoint and the result.
        self.vocabulary = model.count_embeddings(self.model)

    def build_trainer(self, numbers: OwnNumbers) -> None:
        """Make the Trainer and what it calls: collator, evaluation, journal, checks."""
        self._check_tokens()
        self.context.emit(PhaseEvent(name="engine", state="begin"))
        timer = StepTimer(on_gpu=self.context.use_gpu, beat=self.context.beat)
        flops = self._step_flops()
        self.choose_settings()
        self.trainer = self._trainer(timer)
        self.guard = DivergenceGuard(
            self.context,
            self.config,
            lambda: self.trainer.step_batches.worst(self.data.train, self.tokenizer),
        )
        if self.config.objective.has_reference:
            self._add_reference()
        self.evaluator = self._evaluator() if self._evaluates else None
        if repeated := self.trainer.num_repeated:
            self.context.emit(_repeats(repeated, type(self.model).__name__))
        self.identity = DataIdentity(
            self.data,
            source=self.config.data.train_words,
            is_formatted=self.hooks.format_example is not None,
        )
        self.journal = self._journal(timer, flops, numbers)
        self.trainer.add_callback(self.journal)
        own = self._is_own_model
        self.inputs = journal_inputs(self.config, self.context, self.origin, is_own_model=own)

    def choose_settings(self) -> None:
        """Choose what makes steps fast, for the model and the rows that were loaded."""
        self.chosen = choose(
            self.config,
            self.model,
            self.data.sample,
            precision=self.precision,
            use_gpu=self.context.use_gpu,
        )

    def _check_tokens(self) -> None:
        """Raise ModelError for tokens of prompts without an embedding; collators check the rows."""
        prompts = (*self.data.prompts, *self.data.own_prompts)
        tokens = (token for prompt in prompts for token in prompt.input_ids)
        if error := too_large(self.tokenizer, self.vocabulary, tokens):
            raise error

    def _step_flops(self) -> StepFlops | None:
        """Count on rank 0, while the model is as it was loaded: the Trainer wraps it."""
        if not self.context.is_main:
            return None
        dtype, where = self.config.model.dtype, self.arguments.device
        parallelism = self.config.parallelism
        # What GradCache computes once more depends on the number of texts in each micro batch.
        is_cached = getattr(self.config.objective, "mini_batch_size", None) is not None
        names = attention_names(self.model)
        return StepFlops(
            self.model,
            checkpointing=parallelism.gradient_checkpointing,
            replaces_linear=parallelism.replaces_linear,
            kernels=None if is_cached else kernels(self.model, names, dtype, where),
            cache=self.context.cache,
            references=self._references,
        )

    @property
    def _has_known_reference(self) -> bool:
        """Return whether the reference has to be asked before the first step."""
        has_adapter = self.config.method.saves == "adapter" and not self._is_own_model
        is_other = self.config.objective.has_other_reference
        return is_other or not has_adapter or self.origin.adapter is not None

    @property
    def _references(self) -> int:
        """Return how many forward passes without gradients a step has for each sequence."""
        return int(self.config.objective.has_reference and not self._has_known_reference)

    def _add_reference(self) -> None:
        """Give the objective the model as it was before the training. Raises ModelError."""
        assert self.objective is not None
        unwrap = self.trainer.accelerator.unwrap_model
        if not self._has_known_reference:
            self.objective.compare_with(Reference(unwrap))
            return
        if self.config.objective.type == "kto":
            raise ModelError(
                "kto compares with the model as it was, for which the adapter is turned off; of one"
                " that is trained further nothing would be left.",
                remedy="train a new adapter above it (model.adapter=merge), or learn from pairs:"
                " objective.type=dpo",
            )
        known = Computed(unwrap)
        self.objective.compare_with(known)
        self.trainer.add_callback(
            KeepReference(
                known,
                config=self.config,
                context=self.context,
                rows=[*all_rows(self.data), *self.data.eval],  # type: ignore[list-item]
                collate=self._collator(padding_free=False),
                resume=self.resume,
                accelerator=self.trainer.accelerator,
                vocabulary=self.vocabulary,
            )
        )

    def _trainer(self, timer: StepTimer) -> LoopTrainer:
        collator: Any = self._collator(padding_free=self.chosen.padding_free)
        trainer = LoopTrainer(
            model=self.model,
            args=self.arguments,
            train_dataset=self.data.train,
            data_collator=collator,
            processing_class=self.tokenizer,
            timer=timer,
            evaluate_with=self._evaluate if self._evaluates else None,
            skip_nan_steps=self.config.training.on_nan == "skip",
            group=Grouping(collator) if self.chosen.group_by_length else None,
            objective=self.objective,
            has_blank_rows=self.data.stream is not None,
            optimizer_config=self.config.optimizer,
            callbacks=list(call(self.hooks.callbacks)) if self.hooks.callbacks else None,
        )
        trainer.add_callback(KeepAfterFirstStep(self.tokenizer_cache))
        # It prints each step to the log, under Ray twice; the journal has the steps.
        trainer.remove_callback(PrinterCallback)
        return trainer

    def _collator(self, *, padding_free: bool) -> Any:
        collator = Collator(
            too_large=partial(too_large, self.tokenizer, self.vocabulary),
            vocabulary=self.vocabulary,
            pad_token_id=self.tokenizer.pad_token_id,
            pad_to_multiple_of=self.chosen.pad_to_multiple_of,
            label_logits=self.chosen.label_logits,
            padding_free=padding_free,
        )
        return collator if self.objective is None else GroupCollator(self.objective, collator)

    @property
    def _evaluates(self) -> bool:
        return bool(self.data.eval or self.data.own_prompts)

    def _evaluator(self) -> Evaluator:
        return Evaluator(
            examples=self.data.eval,
            prompts=self.data.prompts,
            own_prompts=self.data.own_prompts,
            tokenizer=self.tokenizer,
            collator=self._collator(padding_free=False),
            hooks=self.hooks,
            config=self.config,
            context=self.context,
            accelerator=self.trainer.accelerator,
            objective=self.objective,
        )

    def _evaluate(self, network: Any, step: int) -> dict[str, float]:
        """Evaluate and return the metrics; none without rows. Raises DivergedError."""
        if self.evaluator is None:
            return {}
        metrics = self.evaluator(network, step)
        self.guard.check_evaluation(step, metrics)
        return metrics

    def _journal(
        self, timer: StepTimer, flops: StepFlops | None, numbers: OwnNumbers
    ) -> JournalCallback:
        parameters = model.count_parameters(self.model)
        stream = self.data.stream
        return JournalCallback(
            self.context,
            config=self.config,
            timer=timer,
            start=start_event(
                self.config,
                self.context,
                self.data,
                network=self.model,
                parameters=parameters,
                chosen=self.chosen,
                evaluates=self._evaluates,
            ),
            flops=flops,
            guard=self.guard,
            numbers=numbers,
            # Hooks that count would break a compiled graph apart.
            experts=None if self.config.performance.compile else ExpertCounts.of(self.model),
            stream=stream.progress if stream else None,
            objective=self.objective,
            data=self.identity,
            engine=lambda: type(self.trainer.model_wrapped).__name__,
            verify=lambda: verify(
                self.trainer, self.config, loaded=parameters, is_own_model=self._is_own_model
            ),
            optimizer_states=lambda: optimizer_state_words(self.trainer),
            watch=lambda: EngineWatch(self.trainer, timer.parts),
            profiler=StepProfiler.of(
                self.context, self.config.profile.steps, is_compiled=self.config.performance.compile
            ),
        )

    @property
    def _is_own_model(self) -> bool:
        return self.hooks.build_model is not None

    def restore_rows(self) -> None:
        """Continue after the rows of the checkpoint, and let streamed rows decide the steps."""
        stream, resume = self.data.stream, self.resume
        if resume is not None:
            self.identity.check(resume, self.context)
            if stream is not None:
                stream.progress.resume(resume, step_of(resume.name) or 0)
        if stream is None:
            return
        self.arguments.max_steps = stream.total_steps
        self.arguments.train_sampling_strategy = "sequential"
        self.arguments.dataloader_num_workers = 0
        if stream.progress.ends_with_rows:
            schedule = StreamSchedule(
                warmup=self.config.warmup_steps, by_progress=stream.is_estimate
            )
            self.trainer.follow(schedule)
            stream.progress.follow(schedule)

    def train(self) -> Outcome:
        """Train to the end or to a stop, then evaluate and save the result."""
        evaluation, resume = self.config.evaluation, self.resume
        is_due = evaluation.at_start if resume is None else last_step.is_before_evaluation(resume)
        self.arguments.eval_on_start = bool(self.evaluator and is_due)
        self.trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        step, stopped = self.trainer.state.global_step, self.journal.stopped
        if not stopped:
            metrics = self._evaluate(self.trainer.model_wrapped, step) if evaluation.at_end else {}
            self.guard.check_end(step)
            self.save(metrics)
        wait_for_hashes()
        if self.inputs is not None:
            self.inputs.wait()
        if self.context.is_main and not self.context.use_gpu:
            dtype = self.config.model.dtype
            self.journal.take_peak(device.raise_cpu_peak(dtype, self.context.cache))
        return Outcome(last_step=step, stopped=stopped)

    def save(self, metrics: dict[str, float]) -> None:
        """Write the result, with the figures of the training."""
        trainer = self.trainer
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        figures = {
            "steps": trainer.state.global_step,
            "rows": self.data.num_rows,
            "last training loss": losses[-1] if losses else None,
            **metrics,
        }
        with self.context.phase("save") as details:
            details += output.save(
                trainer,
                tokenizer=self.tokenizer,
                config=self.config,
                context=self.context,
                figures=figures,
                trained=Trained.of(
                    trainer,
                    self.data.sample,
                    is_own_model=self._is_own_model,
                    what=self.config.method.saves,
                ),
                origin=self.origin,
                objective=self.objective,
            )
            # No worker may leave (and end the process group) while rank 0 still writes.
            barrier()


def _repeats(count: int, model_name: str) -> WarningEvent:
    return WarningEvent(
        message=f"Each epoch trains on {counted(count, 'row')} twice, so that all workers have as"
        f" many: {model_name} divides its loss itself, so blank rows cannot take their place.",
        remedy="let the model's forward take **kwargs and divide by num_items_in_batch, or give as"
        " many rows as fill the last step",
    )
