"""Greedy answers of a model, and how those of two versions of it differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from llmops_kernel.errors import ExportError
from llmops_kernel.models.answer_ends import answer_ends, greedy
from llmops_kernel.models.merging import COMPUTED, EXACT, ROUNDED, difference

TIE = 0.01
"""Two tokens whose logits differ by less are a tie: the order of the additions decides."""
ROUNDING = 1.0
"""Rounding weights to 8 bits of mantissa moves a logit by less than this."""
_ALLOWED = {
    **dict.fromkeys(("", "float32", "F32"), EXACT),
    **dict.fromkeys(("float16", "F16"), COMPUTED),
    **dict.fromkeys(("bfloat16", "BF16", "Q8_0"), ROUNDED),
}
"""Differences of logits, by what the weights were rounded to; empty: nothing was."""
_GENERAL = (
    "What is the capital of France?",
    "Name three colours.",
    "Write one sentence about the sea.",
    "Count from one to five.",
)


@dataclass(frozen=True)
class Answer:
    """Token ids of an answer, and the logits that each was chosen from."""

    ids: tuple[int, ...]
    logits: Any
    """Tensor of (tokens, vocabulary), float32."""


@dataclass(frozen=True)
class Check:
    """The number of equal answers, and how the others differ."""

    num_equal: int
    num_prompts: int
    margins: tuple[float, ...]
    """For each other answer: by how much the first different token lost before."""
    rounded_to: str = ""

    def text(self) -> str:
        """Return one sentence."""
        same = f"{self.num_equal} of {self.num_prompts} greedy answers are unchanged"
        if not self.margins:
            return f"{same}."
        ties = sum(margin <= TIE for margin in self.margins)
        parts = [f"{ties} differ{'s' * (ties == 1)} at a tie of two tokens"] if ties else []
        if rounded := len(self.margins) - ties:
            parts.append(
                f"{rounded} differ{'s' * (rounded == 1)} because the weights were rounded to"
                f" {self.rounded_to} (logits at most {max(self.margins):.2g} apart);"
                " --dtype float32 avoids that"
            )
        return f"{same}; {', '.join(parts)}."


def default_prompts(tokenizer: Any) -> tuple[str, ...]:
    """Return general prompts, in the model's chat format where it has one."""
    if not tokenizer.chat_template:
        return _GENERAL
    return tuple(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        for text in _GENERAL
    )


def answer_all(
    model: Any, tokenizer: Any, prompts: Sequence[str], *, max_new_tokens: int
) -> list[Answer]:
    """Answer each prompt greedily, one at a time: padding would change the arithmetic."""
    return [_answer(model, tokenizer, prompt, max_new_tokens) for prompt in prompts]


def _answer(model: Any, tokenizer: Any, prompt: str, max_new_tokens: int) -> Answer:
    ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
    ends = answer_ends(tokenizer, model.generation_config)
    with torch.inference_mode(), greedy(model, ends=ends, pad=tokenizer.pad_token_id):
        generated = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            return_dict_in_generate=True,
            output_logits=True,
        )
    logits = torch.cat([step.float() for step in generated.logits])
    return Answer(tuple(generated.sequences[0, ids.shape[1] :].tolist()), logits)


def compare(before: Sequence[Answer], after: Sequence[Answer], *, rounded_to: str) -> Check:
    """Compare answers token by token. `rounded_to` is empty where nothing was rounded.

    Raises ExportError for a difference that neither a tie nor rounding explains.
    """
    margins = [
        margin
        for old, new in zip(before, after, strict=True)
        if (margin := _margin(old, new)) is not None
    ]
    allowed = ROUNDING if rounded_to else TIE
    worst = max(margins, default=0.0)
    if worst > allowed:
        raise ExportError(
            f"The exported model answers differently: {len(margins)} of {len(before)} answers,"
            f" with a token that was {worst:.3g} behind before. Nothing was written.",
            remedy="report it with the base model's name; --check 0 exports without this check",
        )
    _compare_logits(before, after, allowed=_ALLOWED[rounded_to])
    return Check(len(before) - len(margins), len(before), tuple(margins), rounded_to)


def _compare_logits(before: Sequence[Answer], after: Sequence[Answer], *, allowed: float) -> None:
    """Raise ExportError where logits of the same tokens are further apart than rounding explains.

    A model may answer alike greedily although a weight of it is wrong.
    """
    for old, new in zip(before, after, strict=True):
        pairs = enumerate(zip(old.ids, new.ids, strict=False))
        # The first different token was still chosen after the same tokens.
        alike = next((n + 1 for n, (old_id, new_id) in pairs if old_id != new_id), len(old.ids))
        count = min(alike, len(old.logits), len(new.logits))
        if count and (distance := difference(old.logits[:count], new.logits[:count])) > allowed:
            raise ExportError(
                f"The exported model is not what was trained: its logits are {distance:.1%} away,"
                f" and {allowed:.1%} are allowed. Nothing was written.",
                remedy="report it with the base model's name; --check 0 exports without this check",
            )


def _margin(old: Answer, new: Answer) -> float | None:
    """Return how far the new answer's first different token was behind; None if there is none."""
    for position, (old_id, new_id) in enumerate(zip(old.ids, new.ids, strict=False)):
        if old_id != new_id:
            row = old.logits[position]
            return float(row[old_id] - row[new_id])
    return None
