"""Choosing the next token of each row."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from llmops_kernel.score.engines.protocol import Job


def choose(
    logits: torch.Tensor,
    job: Job,
    generators: Sequence[torch.Generator],
    allowed: torch.Tensor | None = None,
) -> tuple[list[int], list[float]]:
    """Return each row's next token and its log-probability in the whole distribution.

    The log-probability is NaN where the model's output is. `generators` has one for each row where
    temperature > 0; `allowed` says which tokens may come next.
    """
    logits = logits.float()
    open_to = logits if allowed is None else logits.masked_fill(~allowed, -torch.inf)
    if job.temperature > 0:
        shaped = shape(open_to / job.temperature, top_k=job.top_k, top_p=job.top_p)
        chosen = torch.cat([_draw(row, one) for row, one in zip(shaped, generators, strict=True)])
    else:
        chosen = open_to.argmax(dim=-1)
    logprobs = logits.gather(-1, chosen[:, None])[:, 0] - logits.logsumexp(dim=-1)
    return chosen.tolist(), logprobs.tolist()


def shape(logits: torch.Tensor, *, top_k: int | None, top_p: float) -> torch.Tensor:
    """Give -inf to tokens outside of the most probable `top_k`, then `top_p` of the rest."""
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p < 1:
        ordered, index = logits.sort(dim=-1, descending=True)
        probabilities = ordered.softmax(dim=-1)
        # A token is out where those before it have `top_p` already, so the first always stays.
        is_out = probabilities.cumsum(dim=-1) - probabilities >= top_p
        logits = logits.masked_fill(is_out.scatter(-1, index, is_out), -torch.inf)
    return logits


def _draw(row: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    probabilities = row.softmax(dim=-1)
    if not bool(probabilities.isfinite().all()):
        return torch.zeros(1, dtype=torch.long, device=row.device)  # Its log-probability is NaN.
    return torch.multinomial(probabilities, 1, generator=generator)
