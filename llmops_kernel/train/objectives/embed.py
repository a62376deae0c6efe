"""Vectors of texts: InfoNCE, triplet and cosine losses, and how well queries find their texts."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError, DataError
from llmops_kernel.metrics.predictions import means_of, retrievals
from llmops_kernel.train.collectives import gather, is_group
from llmops_kernel.train.data.examples import Group
from llmops_kernel.train.objectives.objective import GROUPS, TARGETS, Evaluating, Objective

_NUMBERS = "llmops_texts"
"""Batch key of a number for each sequence, equal for equal texts."""


def vectors(model: Any, batch: dict[str, Any], pooling: str) -> torch.Tensor:
    """Return a vector for each sequence, float32, as (sequences, width).

    As sentence-transformers pools: `last` takes the last token that is not padding.
    """
    mask = batch["attention_mask"]
    states = model(input_ids=batch["input_ids"], attention_mask=mask).last_hidden_state
    if pooling == "cls":
        pooled = states[:, 0]
    elif pooling == "last":
        last = mask.sum(-1) - 1
        pooled = states[torch.arange(len(states), device=states.device), last]
    else:
        weights = mask.unsqueeze(-1).to(states.dtype)
        pooled = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
    pooled_vectors: torch.Tensor = pooled.float()
    return pooled_vectors


def vectors_by_parts(model: Any, batch: dict[str, Any], pooling: str, size: int) -> torch.Tensor:
    """Return the same vectors from forward passes of `size` sequences: memory for one at a time.

    GradCache, arxiv.org/abs/2101.06983: what lies between is computed again for the gradients. The
    first part goes through the engine, which prepares it for a step's gradients, and is kept; the
    others go through the model inside, which may be called while gradients are computed.
    """
    names = ("input_ids", "attention_mask")
    pieces = zip(*(batch[name].split(size) for name in names), strict=True)
    parts = [dict(zip(names, piece, strict=True)) for piece in pieces]
    inside = getattr(model, "_orig_mod", model)
    inside = getattr(inside, "module", inside)
    pooled = [vectors(model, parts[0], pooling)]
    with set_checkpoint_early_stop(False):  # Hooks of ZeRO and FSDP expect a whole forward pass.
        pooled += [
            checkpoint(vectors, inside, part, pooling, use_reentrant=False) for part in parts[1:]
        ]
    return torch.cat(pooled)


class Embed(Objective):
    """Contrastive learning of vectors.

    `infonce`: arxiv.org/abs/1807.03748, equation 4, with cosine similarities, which
    sentence-transformers calls MultipleNegativesRankingLoss. `triplet`: arxiv.org/abs/1503.03832,
    with cosine distances. `dimensions`: Matryoshka, arxiv.org/abs/2205.13147, the losses' sum.
    """

    figures = ("similarity_positive",)

    def __init__(self, config: TrainingConfig, pad_token_id: int) -> None:
        super().__init__(config, pad_token_id)
        self._evaluated: list[Any] = []

    def prepare(self, train: Sequence[Group], held_out: Sequence[Group]) -> None:
        """Check that rows have what the loss compares. Raises DataError."""
        loss = self.settings.loss_type
        for row in (*train, *held_out):
            scored = row.target is not None
            if scored != (loss == "cosine"):
                has, needs = ("a score", "cosine") if scored else ("no score", "infonce")
                raise DataError(
                    f"Row {row.number} has {has}, and objective.loss_type is {loss}.",
                    remedy=f"set objective.loss_type={needs}, or change the rows",
                )
            if loss == "triplet" and len(row.lengths) < 3:
                raise DataError(
                    f"Row {row.number} has no negative, which the triplet loss compares with.",
                    remedy="give each row `negatives`, or set objective.loss_type=infonce",
                )

    def check_model(self, model: Any) -> None:
        """Raise ConfigError for a length that the model's vectors do not have."""
        width = model.config.get_text_config().hidden_size
        if wrong := [size for size in self.settings.dimensions if not 0 < size <= width]:
            raise ConfigError(
                f"objective.dimensions has {wrong[0]}, and the model's vectors have {width}"
                " numbers.",
                remedy=f"give lengths of 1 to {width}",
            )

    def add_to_batch(self, batch: dict[str, Any], rows: Sequence[Group], collate: Any) -> None:
        """Number the texts: an equal text in another row is no negative."""
        texts = [hash(tuple(part.input_ids)) for row in rows for part in row.parts]
        batch[_NUMBERS] = torch.tensor(texts)

    def terms(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        settings = self.settings
        size = settings.mini_batch_size or len(batch["input_ids"])
        whole = vectors_by_parts(model, batch, settings.pooling, size)
        if not torch.is_grad_enabled():
            self._evaluated.append(whole.cpu().numpy())
        sizes, is_row = batch[GROUPS].unbind(-1)
        queries = (sizes.cumsum(0) - sizes).long()
        widths = [*(size for size in settings.dimensions if size < whole.shape[-1]), None]
        cut = [F.normalize(whole[:, :width], dim=-1) for width in widths]
        positives = (cut[-1][queries] * cut[-1][queries + 1]).sum(-1)
        self.add(is_row, positives)
        if settings.loss_type == "infonce":
            texts = self._texts(batch, queries, sizes)
            losses = sum(self._infonce(each, batch, queries, texts) for each in cut)
        elif settings.loss_type == "triplet":
            losses = sum(self._triplet(each, queries, sizes) for each in cut)
        else:
            losses = sum(
                ((each[queries] * each[queries + 1]).sum(-1) - batch[TARGETS]) ** 2 for each in cut
            )
        return (losses * is_row).sum().reshape(1)

    def _texts(
        self, batch: dict[str, Any], queries: torch.Tensor, sizes: torch.Tensor
    ) -> torch.Tensor:
        """Return which sequences are candidates: all but the queries and those of blank rows."""
        is_text = torch.repeat_interleave(batch[GROUPS][:, 1].bool(), sizes)
        is_text[queries] = False
        return is_text

    def _infonce(
        self,
        encoded: torch.Tensor,
        batch: dict[str, Any],
        queries: torch.Tensor,
        is_text: torch.Tensor,
    ) -> torch.Tensor:
        """Return for each row the cross entropy of its positive among all candidates."""
        own, numbers = encoded[queries + 1], batch[_NUMBERS]
        candidates, known = encoded[is_text], numbers[is_text]
        if self.settings.all_workers and is_group() and dist.get_world_size() > 1:
            candidates, known = _of_all_workers(candidates, known)
        scores = encoded[queries] @ candidates.T / self.settings.temperature
        # The row's positive has a column of its own; equal texts are masked, it among them.
        scores = scores.masked_fill(known == numbers[queries + 1].unsqueeze(-1), -math.inf)
        positive = (encoded[queries] * own).sum(-1, keepdim=True) / self.settings.temperature
        losses: torch.Tensor = torch.logsumexp(torch.cat([positive, scores], -1), -1)
        return losses - positive.squeeze(-1)

    def _triplet(
        self, encoded: torch.Tensor, queries: torch.Tensor, sizes: torch.Tensor
    ) -> torch.Tensor:
        """Return for each row the mean over its negatives."""
        rows = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
        place = torch.arange(len(encoded), device=encoded.device) - queries[rows]
        near = (encoded[queries] * encoded[queries + 1]).sum(-1)
        far = (encoded * encoded[queries[rows]]).sum(-1)
        losses = torch.relu(far - near[rows] + self.settings.margin) * (place > 1)
        sums = losses.new_zeros(len(sizes)).index_add(0, rows, losses)
        return sums / (sizes - 2).clamp(min=1)

    def evaluate(
        self, model: Any, batches: Sequence[Sequence[Group]], collate: Any, step: Evaluating
    ) -> dict[str, float]:
        """Return the loss, and how well each query finds its texts among all held-out ones."""
        self._evaluated = []
        metrics = super().evaluate(model, batches, collate, step)
        mine: list[tuple[tuple[int, ...], Any, tuple[int, ...]]] = []
        for rows, encoded in zip(batches, self._evaluated, strict=True):
            begin = 0
            for row in rows:
                first, *others = row.parts
                pairs = zip(others, encoded[begin + 1 : begin + len(row.lengths)], strict=True)
                query = tuple(first.input_ids)
                mine += [((), vector, tuple(part.input_ids)) for part, vector in pairs]
                mine.append((query, encoded[begin], tuple(others[0].input_ids)))
                begin += len(row.lengths)
        every = [item for share in gather(mine) for item in share]
        if self.settings.loss_type == "cosine" or not every:
            return metrics
        return metrics | retrieval(every, self.settings.dimensions)

    def write(self, folder: Path, *, hidden_size: int) -> None:
        """Write what sentence-transformers reads: the modules, how it pools, and the prefixes."""
        settings = self.settings
        modules = [
            {"idx": n, "name": f"{n}", "path": path, "type": f"sentence_transformers.models.{name}"}
            for n, (name, path) in enumerate(
                (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
            )
        ]
        pooling = {
            "word_embedding_dimension": hidden_size,
            "pooling_mode_cls_token": settings.pooling == "cls",
            "pooling_mode_mean_tokens": settings.pooling == "mean",
            "pooling_mode_lasttoken": settings.pooling == "last",
        }
        about = {
            "model_type": "SentenceTransformer",
            "prompts": {"query": settings.query_prefix, "document": settings.document_prefix},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        }
        sentences = {"max_seq_length": self.config.data.max_length, "do_lower_case": False}
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "2_Normalize").mkdir(exist_ok=True)
        for name, content in (
            ("modules.json", modules),
            ("1_Pooling/config.json", pooling),
            ("2_Normalize/config.json", {}),
            ("config_sentence_transformers.json", about),
            ("sentence_bert_config.json", sentences),
        ):
            (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def _of_all_workers(
    candidates: torch.Tensor, numbers: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the candidates of all workers; gradients flow back to each.

    Workers may have unlike numbers of them: shorter ones are filled up, and cut again.
    """
    from torch.distributed.nn.functional import all_gather

    counts = gather(len(candidates))
    most = max(counts)
    padded = F.pad(candidates, (0, 0, 0, most - len(candidates)))
    filled = F.pad(numbers, (0, most - len(numbers)))
    others = [torch.zeros_like(filled) for _ in counts]
    dist.all_gather(others, filled)
    every = all_gather(padded)
    return (
        torch.cat([part[:count] for part, count in zip(every, counts, strict=True)]),
        torch.cat([part[:count] for part, count in zip(others, counts, strict=True)]),
    )


def retrieval(
    items: Sequence[tuple[tuple[int, ...], Any, tuple[int, ...]]], dimensions: Sequence[int]
) -> dict[str, float]:
    """Return recall, nDCG and MRR of queries among all texts, whole and cut to each dimension.

    `items`: (query, its vector, its positive), or ((), vector, text) of a text.
    """
    texts = {text: vector for query, vector, text in items if not query}
    queries = {query: vector for query, vector, _ in items if query}
    rows, places = ({key: n for n, key in enumerate(group)} for group in (queries, texts))
    pairs = {(rows[query], places[text]) for query, _, text in items if query}
    left, right = (np.stack([*group.values()]) for group in (queries, texts))
    retrieved = retrievals(left, right, np.array(sorted(pairs)), dimensions)
    return {f"eval_{name}": value for name, value in means_of(retrieved).items()}
