"""What others compute: their trainers and losses over a config's rows, from its model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, set_seed

from llmops_kernel.models.source import model_source
from llmops_kernel.train.data.examples import IGNORED, Group, tokenise
from llmops_kernel.train.data.sources import DataSources
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.train.model.load import load_model
from llmops_kernel.train.objectives.objective import objective_of


class Truth:
    """The rows of a config as tokens, and the model that its training begins with."""

    def __init__(self, config: Any, folder: Path) -> None:
        self.config = config
        as_read = config.with_rows_read()
        self.source = model_source(config.model.id, roots=(folder,), cache=None)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(self.source)
        rows = DataSources(as_read.data, (folder,)).train[0].load()
        found = tokenise(rows, tokenizer=self.tokenizer, data=as_read.data, hooks=Hooks())
        self.rows: Any = found.examples
        self.objective: Any = objective_of(config, self.tokenizer.pad_token_id)
        if self.objective is not None:
            self.objective.prepare(self.rows, [])

    def model(self) -> Any:
        """Return the model as a session of ours loads it, in which the seed decides new weights."""
        set_seed(self.config.seed)
        float32 = self.config.model.model_copy(update={"dtype": "float32"})
        config = self.config.model_copy(update={"model": float32})
        options = self.objective.model_options() if self.objective is not None else None
        return load_model(self.source, config, Hooks(), options=options)

    def batches(self) -> Iterator[list[Group]]:
        """Yield the rows of each step."""
        size = self.config.training.global_batch_size
        for step in range(self.config.training.max_steps):
            yield self.rows[step * size : (step + 1) * size]

    def arguments(self, folder: Path) -> dict[str, Any]:
        """Return what TRL's configs get."""
        training, optimizer = self.config.training, self.config.optimizer
        return {
            "output_dir": str(folder),
            "use_cpu": True,
            "bf16": False,
            "per_device_train_batch_size": training.micro_batch_size,
            "gradient_accumulation_steps": self.config.gradient_accumulation_steps,
            "max_steps": training.max_steps,
            "learning_rate": optimizer.learning_rate,
            "lr_scheduler_type": optimizer.lr_scheduler_type,
            "max_grad_norm": optimizer.max_grad_norm,
            "logging_steps": 1,
            "logging_strategy": "steps",
            "save_strategy": "no",
            "report_to": "none",
            "train_sampling_strategy": "sequential",
            "disable_tqdm": True,
            "gradient_checkpointing": False,
            "max_length": None,
        }


def plain(
    truth: Truth, loss_of: Callable[[Any, Sequence[Group]], torch.Tensor]
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train by a plain loop of PyTorch. Returns the losses, and the gradients of the first step."""
    model, settings = truth.model().train(), truth.config.optimizer
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=0.0)
    steps = truth.config.training.max_steps
    losses, gradients = [], {}
    for step, rows in enumerate(truth.batches()):
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * (1 + math.cos(math.pi * step / steps)) / 2
        loss = loss_of(model, rows)
        optimizer.zero_grad()
        loss.backward()
        if not step:
            gradients = {
                name: weight.grad.clone()
                for name, weight in model.named_parameters()
                if weight.grad is not None
            }
        torch.nn.utils.clip_grad_norm_(weights, settings.max_grad_norm)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, gradients


def padded(parts: Sequence[Any], pad: int) -> dict[str, torch.Tensor]:
    """Return sequences as a batch, padded on the right."""
    width = max(len(part.input_ids) for part in parts)
    ids = [part.input_ids + [pad] * (width - len(part.input_ids)) for part in parts]
    mask = [[1] * len(part.input_ids) + [0] * (width - len(part.input_ids)) for part in parts]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def token_log_probs(model: Any, truth: Truth, part: Any) -> torch.Tensor:
    """Return the log-probability of each label of one sequence, alone and without padding."""
    ids, labels = torch.tensor([part.input_ids]), torch.tensor(part.labels)[1:]
    log_probs = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
    kept = labels != IGNORED
    return log_probs[kept].gather(-1, labels[kept].unsqueeze(-1)).squeeze(-1)


def split(part: Any) -> tuple[list[int], list[int]]:
    """Return prompt and answer of a sequence; what follows the answer's last label is left out."""
    places = [n for n, label in enumerate(part.labels) if label != IGNORED]
    return part.input_ids[: places[0]], part.input_ids[places[0] : places[-1] + 1]
