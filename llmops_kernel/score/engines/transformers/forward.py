"""Loads a model with Transformers, and runs it forward over rows of different lengths."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer

from llmops_kernel.errors import LLMOpsError, ModelError
from llmops_kernel.models.answer_ends import answer_ends
from llmops_kernel.models.source import pickle_refused
from llmops_kernel.score.engines.checkpoint import check_memory, load_error
from llmops_kernel.score.engines.prompts import (
    NAN,
    Item,
    answer_tokens,
    choice_probabilities,
    context_length,
    failed,
)
from llmops_kernel.score.engines.protocol import Answer, Encoder, EngineSpec


class Forward:
    """Reads rows of tokens, padded on the left, so that the last token of all is at the end."""

    def __init__(self, loaded: Loaded, model: Any) -> None:
        self.loaded = loaded
        self.model = model
        # A PEFT model passes on what it gets.
        self._names = frozenset(inspect.signature(loaded.model.forward).parameters)
        self.mask = torch.empty(0)
        self._cache: Any = None

    def prefill(self, rows: Sequence[Sequence[int]], *, keep: int = 1, **options: Any) -> Any:
        """Read rows; return the model's output, with logits of the last `keep` tokens."""
        width = max(len(row) for row in rows)
        device = self.loaded.device
        ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows], device=device)
        self.mask = torch.tensor(
            [[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device
        )
        positions = (self.mask.cumsum(-1) - 1).clamp(min=0)
        return self._call(ids, positions, keep=keep, **options)

    def extend(self, ids: torch.Tensor) -> Any:
        """Read further tokens of the rows, `[rows, tokens]`; the logits are of all of them."""
        start = self.mask.sum(-1, keepdim=True)
        positions = start + torch.arange(ids.shape[1], device=ids.device)
        self.mask = torch.cat([self.mask, torch.ones_like(ids)], dim=-1)
        return self._call(ids, positions, keep=0, use_cache=True)

    def _call(self, ids: torch.Tensor, positions: torch.Tensor, keep: int, **options: Any) -> Any:
        if "position_ids" in self._names:
            options["position_ids"] = positions
        if "logits_to_keep" in self._names:
            options["logits_to_keep"] = keep
        with torch.inference_mode():
            output = self.model(
                input_ids=ids, attention_mask=self.mask, past_key_values=self._cache, **options
            )
        self._cache = getattr(output, "past_key_values", None)
        return output

    def select(self, rows: Sequence[int]) -> bool:
        """Keep only these rows; False where the model's cache cannot."""
        index = torch.tensor(rows, device=self.loaded.device)
        try:
            self._cache.batch_select_indices(index)
        except (AttributeError, NotImplementedError):
            return False
        self.mask = self.mask[index]
        return True

    def fork(self) -> Forward:
        """Return a copy that goes on from here; this one stays as it is."""
        branch = copy(self)
        branch._cache = deepcopy(self._cache)
        return branch


def log_softmax(logits: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(logits.float(), dim=-1)


# --- Probabilities of given texts, and embeddings ---


_MAX_LOGIT_BYTES = 256_000_000


def classify(loaded: Loaded, forward: Forward, items: Sequence[Item]) -> list[Answer]:
    """Answer with the most probable choice: see `choice_probabilities`.

    The prompts are read once; each choice goes on from there.
    """
    choices = {label: answer_tokens(loaded.tokenizer, label) for label in items[0].job.choices}
    output = forward.prefill([item.prompt for item in items], use_cache=True)
    first = log_softmax(output.logits[:, -1])
    totals: dict[str, list[float]] = {}
    for choice, tokens in choices.items():
        sums = first[:, tokens[0]]
        if len(tokens) > 1:
            ids = torch.tensor([tokens], device=loaded.device).expand(len(items), -1)
            later = log_softmax(forward.fork().extend(ids[:, :-1]).logits)
            sums = sums + later.gather(-1, ids[:, 1:, None])[..., 0].sum(-1)
        totals[choice] = sums.tolist()
    return [
        _chosen(item, {choice: sums[place] for choice, sums in totals.items()}, choices)
        for place, item in enumerate(items)
    ]


def _chosen(item: Item, logprobs: dict[str, float], choices: dict[str, list[int]]) -> Answer:
    if any(math.isnan(value) for value in logprobs.values()):
        return failed(item.request, NAN, prompt_tokens=len(item.prompt))
    scores = choice_probabilities(logprobs)
    best = max(logprobs, key=logprobs.__getitem__)
    return Answer(
        id=item.request.id,
        text=best,
        prompt_tokens=len(item.prompt),
        output_tokens=len(choices[best]),
        logprob=logprobs[best],
        scores=scores,
    )


def logprob(loaded: Loaded, forward: Forward, items: Sequence[Item]) -> Iterator[Answer]:
    """Answer with the log-probability of each item's target, or of its prompt without the first."""
    rows = [item.prompt + item.target for item in items]
    keeps = [len(item.target or item.prompt[1:]) for item in items]
    size = max(1, _MAX_LOGIT_BYTES // (4 * loaded.vocabulary * (max(keeps) + 1)))
    for start in range(0, len(items), size):
        part = slice(start, start + size)
        yield from _logprob(loaded, forward, items[part], rows[part], keeps[part])


def _logprob(
    loaded: Loaded,
    forward: Forward,
    items: Sequence[Item],
    rows: Sequence[list[int]],
    keeps: Sequence[int],
) -> Iterator[Answer]:
    output = forward.prefill(rows, keep=max(keeps) + 1, use_cache=False)
    for item, row, keep, logits in zip(items, rows, keeps, output.logits, strict=True):
        targets = torch.tensor(row[len(row) - keep :], device=loaded.device, dtype=torch.long)
        places = log_softmax(logits[-keep - 1 : -1])
        total = float(places.gather(-1, targets[:, None]).sum())
        if math.isnan(total):
            yield failed(item.request, NAN, prompt_tokens=len(item.prompt))
            continue
        answer = Answer(
            id=item.request.id, prompt_tokens=len(item.prompt), output_tokens=keep, logprob=total
        )
        if count := min(item.job.top_logprobs, places.shape[-1]):
            values, ids = places.topk(count, dim=-1)
            answer.target_tokens = item.target
            answer.top_tokens, answer.top_logprobs = ids.tolist(), values.tolist()
        yield answer


def embed(forward: Forward, items: Sequence[Item]) -> Iterator[Answer]:
    """Answer with the mean over the prompt of the last layer's output, of length 1.

    As in Sentence-BERT (arxiv.org/abs/1908.10084); after the model's last normalisation.
    """
    output = forward.prefill(
        [item.prompt for item in items], use_cache=False, output_hidden_states=True
    )
    weights = forward.mask[..., None].float()
    means = (output.hidden_states[-1].float() * weights).sum(1) / weights.sum(1)
    vectors = torch.nn.functional.normalize(means, dim=-1).tolist()
    for item, vector in zip(items, vectors, strict=True):
        if any(math.isnan(value) for value in vector):
            yield failed(item.request, NAN, prompt_tokens=len(item.prompt))
        else:
            yield Answer(id=item.request.id, prompt_tokens=len(item.prompt), embedding=vector)


# --- Vectors, labels and numbers of models that were trained to give them ---


def read_whole(loaded: Loaded, model: Any, items: Sequence[Item]) -> Iterator[Answer]:
    """Answer with what the model returns for each whole text.

    Padded on the right and without positions, as sentence-transformers and Transformers' pipelines
    do: a head finds the last token by the padding.
    """
    pad = getattr(loaded.model.config.get_text_config(), "pad_token_id", None)
    if pad is None and items[0].job.encoder is not None:
        pad = loaded.tokenizer.pad_token_id or 0
    # Without a padding token a head knows the last token of a single row only.
    batches = [items] if pad is not None else [[item] for item in items]
    for batch in batches:
        width = max(len(item.prompt) for item in batch)
        rows = [item.prompt + [pad or 0] * (width - len(item.prompt)) for item in batch]
        mask = [[1] * len(item.prompt) + [0] * (width - len(item.prompt)) for item in batch]
        ids, masks = (torch.tensor(part, device=loaded.device) for part in (rows, mask))
        with torch.inference_mode():
            output = model(input_ids=ids, attention_mask=masks)
        encoder = items[0].job.encoder
        numbers = output.logits.float() if encoder is None else _pooled(output, masks, encoder)
        for item, row in zip(batch, numbers.tolist(), strict=True):
            if any(math.isnan(value) for value in row):
                yield failed(item.request, NAN, prompt_tokens=len(item.prompt))
            else:
                yield _read(item, row)


def _pooled(output: Any, mask: torch.Tensor, encoder: Encoder) -> torch.Tensor:
    """Return a vector for each row, float32."""
    states = output.last_hidden_state.float()
    if encoder.pooling == "cls":
        vectors = states[:, 0]
    elif encoder.pooling == "last":
        vectors = states[torch.arange(len(states), device=states.device), mask.sum(-1) - 1]
    else:
        weights = mask[..., None].float()
        vectors = (states * weights).sum(1) / weights.sum(1)
    return torch.nn.functional.normalize(vectors, dim=-1) if encoder.is_normalized else vectors


def _read(item: Item, row: list[float]) -> Answer:
    job = item.job
    answer = Answer(id=item.request.id, prompt_tokens=len(item.prompt))
    if job.encoder is not None:
        answer.embedding = row
        answer.finish = "length" if item.is_cut else "stop"
    elif job.task == "value":
        (answer.value,) = row
        answer.text = repr(answer.value)
    else:
        logits = torch.tensor(row, dtype=torch.float64)
        shares = logits.sigmoid() if job.is_multi_label else logits.softmax(-1)
        answer.scores = dict(zip(job.labels, shares.tolist(), strict=True))
        likeliest = max(answer.scores, key=answer.scores.__getitem__)
        several = [label for label, share in answer.scores.items() if share > 0.5]
        answer.text = json.dumps(several, ensure_ascii=False) if job.is_multi_label else likeliest
    return answer


# --- Loads a model and its tokenizer with Transformers ---


@dataclass(frozen=True)
class Loaded:
    """A model that answers, and what is known about it."""

    model: Any
    tokenizer: Any
    context: int
    """Longest prompt with its answer, in tokens."""
    eos: frozenset[int]
    """Tokens that end an answer."""
    vocabulary: int
    """Tokens that the model gives a probability to."""
    device: torch.device


def load(spec: EngineSpec) -> Loaded:
    """Load the model. Raises ModelError."""
    device = _device(spec)
    free = torch.cuda.mem_get_info()[0] if device.type == "cuda" else None
    check_memory(spec, free)
    try:
        return _load(spec, device)
    except LLMOpsError:
        raise
    except UnpicklingError as error:
        raise pickle_refused(spec.model) from error
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, MemoryError) as error:
        raise load_error(spec, error) from error


def _device(spec: EngineSpec) -> torch.device:
    if spec.num_gpus <= 0:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ModelError(
            f"The engine asks for {spec.num_gpus:g} GPU, and torch sees none on this node.",
            remedy="install a build of torch for the node's GPUs, or score on CPUs",
        )
    return torch.device("cuda")


def _load(spec: EngineSpec, device: torch.device) -> Loaded:
    origin: dict[str, Any] = {
        "revision": spec.revision,
        "trust_remote_code": spec.trust_remote_code,
    }
    config = AutoConfig.from_pretrained(spec.model, **origin, **spec.head)
    text = config.get_text_config()
    context = context_length(getattr(text, "max_position_embeddings", None), spec.max_model_len)
    tokenizer = AutoTokenizer.from_pretrained(spec.model, **origin)
    model = getattr(transformers, spec.auto_class).from_pretrained(
        spec.model, config=config, dtype=getattr(torch, spec.dtype), **origin
    )
    model.eval().requires_grad_(False).to(device)
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        context=context,
        eos=frozenset(answer_ends(tokenizer, getattr(model, "generation_config", None))),
        vocabulary=text.vocab_size,
        device=device,
    )
