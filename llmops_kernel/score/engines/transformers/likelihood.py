"""Probabilities of given texts, and vectors: the tasks that write nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from llmops_kernel.score.engines.item import Item
from llmops_kernel.score.engines.prompts import NAN, answer_tokens, choice_probabilities, failed
from llmops_kernel.score.engines.protocol import Answer
from llmops_kernel.score.engines.transformers.forward import Forward, log_softmax
from llmops_kernel.score.engines.transformers.loading import Loaded

_MAX_LOGIT_BYTES = 256_000_000


def classify(loaded: Loaded, forward: Forward, items: Sequence[Item]) -> list[Answer]:
    """Answer with the most probable choice: see `choice_probabilities`.

    The prompts are read once; each choice goes on from there.
    """
    choices = {one: answer_tokens(loaded.tokenizer, one) for one in items[0].job.choices}
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
        wanted = torch.tensor(row[len(row) - keep :], device=loaded.device, dtype=torch.long)
        places = log_softmax(logits[-keep - 1 : -1])
        total = float(places.gather(-1, wanted[:, None]).sum())
        if math.isnan(total):
            yield failed(item.request, NAN, prompt_tokens=len(item.prompt))
        else:
            yield Answer(
                id=item.request.id,
                prompt_tokens=len(item.prompt),
                output_tokens=keep,
                logprob=total,
            )


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
