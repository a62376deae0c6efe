"""Hooks of the menu example: how a row becomes a chat, and how the model's answers are scored.

A config names this file (`hooks: {file: menu_hooks.py}`) and the run calls whichever of the hook
functions it finds here. The file travels with each submission, so edit it, submit again, and the
next run uses the new code; nothing needs a restart. These hooks are used here:

* `format_example(row)` is called once for each row of the data files and returns the chat to train
  on. The loss counts the assistant's words only: the answer is what the model learns to write.
  A scoring takes the same chat without the answer as its prompt.
* `compute_metrics(predictions, references, rows)` is called after each evaluation with the answers
  that the model wrote, the answers it should have written, and the rows they belong to. Whatever
  numbers it returns appear beside the loss.
* `score_row(prediction, reference, row)` is called for each row of a scoring: its numbers are
  columns of the scored table, and what two scorings are compared by. An evaluation while training
  calls it for the answers that it keeps, and shows its numbers beside them.

A hook is ordinary Python and can be tried in a notebook cell before it is submitted.
"""

from __future__ import annotations

import re
from typing import Any

# Short on purpose: every token here is paid for in every row. Without a system message SmolLM2's
# chat template would insert its own, which is longer.
INSTRUCTION = "Reply: cuisine | course | diet | allergens"

FIELDS = ("cuisine", "course", "diet", "allergens")
VOCABULARY = {  # closed sets, see data/DATASHEET.md
    "cuisine": "american chinese french greek indian italian"
    " japanese korean lebanese mexican spanish thai",
    "course": "dessert main salad side soup starter",
    "diet": "pescatarian vegan vegetarian",
    "allergens": "egg fish gluten milk nuts sesame shellfish soy",
}
WORDS = {field: frozenset(words.split()) for field, words in VOCABULARY.items()}
METRICS = ("field_accuracy", *(f"{field}_accuracy" for field in FIELDS), "exact_match")
NOTHING = frozenset({"none", "no", "nothing", "n/a", "-", "–"})


def format_example(row: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    """The chat for one menu item, answered by `italian | main | vegetarian | gluten, milk`."""
    tags = row["tags"]
    # "vegan" says "vegetarian" too; the shorter answer is quicker to learn and to write.
    diet = ["vegan"] if "vegan" in tags["diet"] else tags["diet"]
    lists = [", ".join(values) or "none" for values in (diet, tags["allergens"])]
    return {
        "messages": [
            {"role": "system", "content": INSTRUCTION},
            {"role": "user", "content": f"{row['name']}: {row['description']}"},
            {"role": "assistant", "content": " | ".join([tags["cuisine"], tags["course"], *lists])},
        ]
    }


def compute_metrics(
    predictions: list[str], references: list[str], rows: list[dict[str, Any]]
) -> dict[str, float]:
    """Shares (0..1) of fields that are exactly right; lists are compared as sets.

    The truth is read from the rows' tags rather than from `references`, so rewording the answer in
    `format_example` does not change what is measured.
    """
    pairs = zip(predictions, references, rows, strict=True)
    scored = [score_row(*pair) for pair in pairs] or [dict.fromkeys(METRICS, 0.0)]
    return {name: sum(one[name] for one in scored) / len(scored) for name in METRICS}


def score_row(prediction: str, reference: str | None, row: dict[str, Any]) -> dict[str, float]:
    """One answer's numbers, 0 or 1 a field: their means are the numbers of `compute_metrics`."""
    right = _right_fields(prediction, row["tags"])
    fields = {f"{field}_accuracy": float(right[field]) for field in FIELDS}
    share = sum(fields.values()) / len(FIELDS)
    return {"field_accuracy": share, **fields, "exact_match": float(all(right.values()))}


def parse_answer(text: str) -> dict[str, frozenset[str] | None]:
    """What an answer says about each field, leniently; None where it says nothing usable.

    Upper case, spaces, order, labels such as `Cuisine:` and one field a line are all fine. Text
    without four parts is searched for the words of each vocabulary.
    """
    parts = [part for part in re.split(r"[|;\n]", text.lower().strip().strip("|")) if part.strip()]
    if len(parts) >= len(FIELDS):
        # The position names the field, unless a label does.
        labelled = {f: part for part in parts for f in FIELDS if re.match(rf"\W*{f}\W*:", part)}
        by_field = {**dict(zip(FIELDS, parts, strict=False)), **labelled}
        return {field: _values(by_field.get(field, ""), field=field) for field in FIELDS}
    return {field: _values(text.lower(), field=field, anywhere=True) for field in FIELDS}


def _right_fields(text: str, tags: dict[str, Any]) -> dict[str, bool]:
    said = parse_answer(text)
    truth = {f: frozenset([tags[f]] if isinstance(tags[f], str) else tags[f]) for f in FIELDS}
    return {field: said[field] == truth[field] for field in FIELDS}


def _values(text: str, *, field: str, anywhere: bool = False) -> frozenset[str] | None:
    tokens = set(re.findall(r"[^\s,.:*()\[\]\"']+", text))
    found = frozenset(tokens & WORDS[field])
    if "vegan" in found:
        found |= {"vegetarian"}
    says_none = not anywhere and bool(tokens & NOTHING)
    return found if found or says_none else None
