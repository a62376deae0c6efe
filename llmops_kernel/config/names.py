"""Names people know from elsewhere, and what they are called here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llmops_kernel.config.problems import ABSENT

Given = Callable[[str, str], Any]
"""Returns what a config says of the field (section, name), or the field's default."""


def _same(value: Any, _: Given) -> Any:
    return value


@dataclass(frozen=True)
class Alias:
    """A name that says the same as a field of ours: a config may have it instead."""

    field: str
    convert: Callable[[Any, Given], Any] = _same
    """The field's value; ABSENT for a value with which the name says something else."""

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.field.split("."))

    @property
    def is_plain(self) -> bool:
        """Return whether it is another name of the field and nothing more."""
        return self.convert is _same


def _micro_batch_size(value: Any, _: Given) -> Any:
    return value  # not plain: without a number of accumulated steps it says that there is one


def _when(true: Any, false: Any = ABSENT) -> Callable[[Any, Given], Any]:
    """Return a conversion of `true` and `false`."""
    chosen = {True: true, False: false}
    return lambda value, _: chosen[value] if isinstance(value, bool) else ABSENT


def _global_batch_size(accumulated: Any, given: Given) -> Any:
    micro, workers = given("training", "micro_batch_size"), given("parallelism", "num_workers")
    is_known = all(type(number) is int for number in (accumulated, micro, workers))
    return accumulated * micro * workers if is_known else ABSENT


def _warmup_steps(ratio: Any, given: Given) -> Any:
    steps = given("training", "max_steps")
    is_known = type(steps) is int and type(ratio) in (int, float) and 0 <= ratio <= 1
    return math.ceil(ratio * steps) if is_known else ABSENT


PER_DEVICE, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
ACCEPTED: dict[str, Alias] = {
    name: Alias(field)
    for field, names in {
        "name": "run_name",
        "model.id": "model_name_or_path model_id base_model",
        "model.attention": "attn_implementation",
        "model.trust_remote_code": "trust_remote_code",
        "data.train": "train_file",
        "data.eval": "validation_file",
        "data.max_length": "max_length max_seq_length sequence_len cutoff_len",
        "data.packing": "packing",
        "method.r": "lora_r lora_rank method.rank",
        "method.lora_alpha": "lora_alpha method.alpha",
        "method.lora_dropout": "lora_dropout method.dropout",
        "method.target_modules": "lora_target_modules target_modules",
        "method.use_rslora": "use_rslora",
        "method.use_dora": "use_dora",
        "parallelism.gradient_checkpointing": "gradient_checkpointing activation_checkpointing",
        "optimizer.learning_rate": "learning_rate lr",
        "optimizer.lr_scheduler_type": "lr_scheduler_type",
        "optimizer.warmup_steps": "warmup_steps",
        "optimizer.weight_decay": "weight_decay",
        "optimizer.adam_beta1": "adam_beta1",
        "optimizer.adam_beta2": "adam_beta2",
        "optimizer.max_grad_norm": "max_grad_norm clip_grad_norm gradient_clipping",
        "training.num_epochs": "num_train_epochs num_epochs epochs",
        "training.max_steps": "max_steps",
        "training.micro_batch_size": "micro_batch_size",
        "performance.group_by_length": "group_by_length",
        "performance.padding_free": "padding_free",
        "performance.compile": "torch_compile",
        "performance.tf32": "tf32",
        "evaluation.micro_batch_size": "per_device_eval_batch_size",
        "evaluation.every_steps": "eval_steps",
        "checkpoint.every_steps": "save_steps",
        "checkpoint.keep": "save_total_limit",
        "output.url": "output_dir",
    }.items()
    for name in names.split()
} | {
    "bf16": Alias("model.dtype", _when("bfloat16")),
    "train_on_inputs": Alias("data.loss_on", _when("all", "answer")),
    "use_cpu": Alias("parallelism.use_gpu", _when(False, "auto")),
    "no_cuda": Alias("parallelism.use_gpu", _when(False, "auto")),
    "auto_find_batch_size": Alias("training.micro_batch_size", _when("auto")),
    PER_DEVICE: Alias("training.micro_batch_size", _micro_batch_size),
    # These read what the names above may have set.
    ACCUMULATION: Alias("training.global_batch_size", _global_batch_size),
    "warmup_ratio": Alias("optimizer.warmup_steps", _warmup_steps),
}
"""Names that say the same as a field in every case, at the top level or in the field's section; a
dotted one there only. Others mean more or less, so they are only explained: `fp16` is another
number format, `deepspeed` and `fsdp` may name files, `dataset` an entry of a list."""

ALIASES: dict[str, str] = {
    **{name: alias.field for name, alias in ACCEPTED.items() if "." not in name},
    "gradient_checkpointing_kwargs": "parallelism.gradient_checkpointing",
    "activation_checkpointing_kwargs": "parallelism.gradient_checkpointing",
    "deepspeed": "parallelism.strategy",
    "fsdp": "parallelism.strategy",
    "fsdp_config": "parallelism.strategy",
    "fp16": "model.dtype",
    "bf16_full_eval": "model.dtype",
    "fp16_full_eval": "model.dtype",
    "do_eval": "data.eval",
    "do_train": "data.train",
    "do_predict": "evaluation.generate",
    "evaluation_strategy": "evaluation.every_steps",
    "seed": "seed",
    "report_to": "report_to",
    "scheduler": "optimizer.lr_scheduler_type",
    "lr_scheduler": "optimizer.lr_scheduler_type",
    "batch_size": "training.global_batch_size",
    "train_batch_size": "training.global_batch_size",
    "attn_impl": "model.attention",
    "flash_attn": "model.attention",
    "use_liger_kernel": "performance.fused_loss",
    "liger_kernel_config": "performance.fused_loss",
    "torch_dtype": "model.dtype",
    "precision": "model.dtype",
    "dataset": "data.train",
    "block_size": "data.max_length",
    "rank": "method.r",
    "alpha": "method.lora_alpha",
    "dropout": "method.lora_dropout",
    "gpus": "parallelism.num_workers",
    "num_gpus": "parallelism.num_workers",
    "world_size": "parallelism.num_workers",
    "steps": "every_steps",
    "interval": "every_steps",
}
"""Foreign name -> our field, as a dotted path (or, where several sections have it, its leaf)."""

_JOURNAL = "every step is already recorded in the journal"
OWNED: dict[str, str] = {
    **{name: f"set {path}" for name, path in ALIASES.items() if "." in path or name == path},
    "run_name": "set name",
    "gradient_accumulation_steps": "set training.global_batch_size; accumulation follows from it",
    "auto_find_batch_size": "set training.micro_batch_size=auto",
    "hub_token": "secrets do not belong in a config; set HF_TOKEN where the cluster runs",
    "disable_tqdm": _JOURNAL,
    "remove_unused_columns": "unused columns are never read",
    "load_best_model_at_end": "set checkpoint.every_steps and evaluation.every_steps, and pick one",
    "metric_for_best_model": "return it from the hook compute_metrics",
    "resume_from_checkpoint": "retry the run: `llmops retry RUN`",
    "local_rank": "Ray Train sets it",
    "train_sampling_strategy": "set data.shuffle, and performance.group_by_length",
}
"""Transformers' arguments that this file has fields for -> what to set."""

OWNED_PREFIXES: dict[str, str] = {
    "logging_": _JOURNAL,
    "save_": "set checkpoint.every_steps and checkpoint.keep",
    "eval_": "set evaluation.every_steps, evaluation.at_start and evaluation.at_end",
    "per_device_": "set training.micro_batch_size and evaluation.micro_batch_size",
}

VALUE_ALIASES: dict[str, str] = {
    "bf16": "bfloat16",
    "bf16-mixed": "bfloat16",
    "fp16": "bfloat16",
    "float16": "bfloat16",
    "half": "bfloat16",
    "fp32": "float32",
    "float": "float32",
    "32": "float32",
    "16": "bfloat16",
    "peft": "lora",
    "4bit": "qlora",
    "nf4": "qlora",
    "fsdp2": "fsdp",
    "deepspeed": "zero2",
    "none": "ddp",
    "0": "ddp",
    "1": "zero1",
    "2": "zero2",
    "3": "zero3",
    "flash": "flash_attention_2",
    "flash_attn": "flash_attention_2",
    "fa2": "flash_attention_2",
    "fa3": "flash_attention_3",
    "messages": "chat",
    "instruct": "chat",
    "jsonl": "auto",
    "completion": "answer",
    "assistant": "answer",
}
"""Other spellings of a choice -> the one that works here."""

OTHER_METHODS = ("adalora", "dpo", "ia3", "oft", "prefix", "prompt", "rlhf", "sft", "vera")
"""Methods and stages of training known from elsewhere; none is a misspelling of one of ours."""

METHOD_OPTIONS = {"dora": "use_dora", "rslora": "use_rslora"}
"""Methods known from elsewhere -> the field of `lora` and `qlora` that turns them on."""

TRACKERS = ("comet_ml", "mlflow", "tensorboard", "trackio", "wandb")
"""The trackers of `report_to`, by the names that Transformers has for them."""

_TRAINING_ARGUMENTS = """
accelerator_config activation_checkpointing activation_checkpointing_kwargs adam_beta1
adam_beta2 adam_epsilon auto_find_batch_size average_tokens_across_devices batch_eval_metrics
bf16 bf16_full_eval data_seed dataloader_drop_last dataloader_in_order
dataloader_multiprocessing_context dataloader_num_workers dataloader_persistent_workers
dataloader_pin_memory dataloader_prefetch_factor ddp_backend ddp_broadcast_buffers
ddp_bucket_cap_mb ddp_find_unused_parameters ddp_static_graph ddp_timeout debug deepspeed
disable_tqdm do_eval do_predict do_train enable_jit_checkpoint eval_accumulation_steps
eval_delay eval_do_concat_batches eval_on_start eval_steps eval_strategy eval_use_gather_object
fp16 fp16_full_eval fsdp fsdp_config full_determinism gradient_accumulation_steps
gradient_checkpointing gradient_checkpointing_kwargs greater_is_better hub_always_push
hub_model_id hub_private_repo hub_revision hub_strategy hub_token ignore_data_skip
include_for_metrics include_num_input_tokens_seen label_names label_smoothing_factor
learning_rate length_column_name liger_kernel_config load_best_model_at_end local_rank
log_level log_level_replica log_on_each_node logging_first_step logging_nan_inf_filter
logging_steps logging_strategy lr_scheduler_kwargs lr_scheduler_type max_grad_norm max_steps
metric_for_best_model neftune_noise_alpha num_train_epochs optim optim_args
optim_target_modules output_dir parallelism_config per_device_eval_batch_size
per_device_train_batch_size prediction_loss_only project push_to_hub remove_unused_columns
report_to restore_callback_states_from_checkpoint resume_from_checkpoint run_name
save_on_each_node save_only_model save_steps save_strategy save_total_limit seed
skip_memory_metrics tf32 torch_compile torch_compile_backend torch_compile_mode
torch_empty_cache_steps trackio_bucket_id trackio_space_id trackio_static_space_id
train_sampling_strategy use_cache use_cpu use_liger_kernel warmup_steps weight_decay
"""
TRAINING_ARGUMENTS = frozenset(_TRAINING_ARGUMENTS.split())
"""Every field of Transformers' TrainingArguments (5.23); a test compares it with the source."""
