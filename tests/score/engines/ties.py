"""How far apart two answers of a model are, where they differ first."""

from __future__ import annotations

from dataclasses import replace

from llmops_kernel.score.engines.protocol import Answer, Engine, Job, Prompt, Request

TIE = 0.02
"""Natural logarithm between two tokens that either engine may choose."""


def gap(engine: Engine, prompt: Prompt, job: Job, texts: tuple[str, str]) -> float:
    """By how much one text's first other token is more probable than the other's."""
    from llmops_kernel.score.engines.transformers.engine import TransformersEngine

    assert isinstance(engine, TransformersEngine)
    tokenizer = engine.loaded.tokenizer
    one, other = (tokenizer(text, add_special_tokens=False).input_ids for text in texts)
    same = 0
    while one[same] == other[same]:
        same += 1
    starts = [tokenizer.decode(ids[: same + 1]) for ids in (one, other)]
    for number, start in enumerate(starts):
        engine.add(Request(id=number, prompt=prompt, target=start), replace(job, task="logprob"))
    found: list[Answer] = []
    while engine.unfinished:
        found += engine.step()
    first, second = (answer.logprob or 0.0 for answer in found)
    return abs(first - second)
