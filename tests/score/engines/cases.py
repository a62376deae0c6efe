"""What each engine must do, as data: the same table is run in any environment.

`python -m tests.score.engines.cases IN OUT` reads a spec and adapters, and writes all answers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from llmops_kernel.score.engines.protocol import (
    Answer,
    Encoder,
    Engine,
    EngineSpec,
    Job,
    Message,
    Request,
    load_engine,
)

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "is_vegan": {"type": "boolean"},
            "price": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["name", "is_vegan", "price"],
    }
)
DISHES = (
    "Margherita pizza: tomato, mozzarella, basil",
    "Beef burger: minced beef, cheddar, bun",
    "Lentil soup: lentils, carrots, cumin",
    "Caesar salad: chicken, lettuce, parmesan, anchovies",
    "Falafel: chickpeas, tahini, parsley",
    "Tiramisu: mascarpone, eggs, coffee, cocoa, ladyfingers",
)


def chat(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


@dataclass(frozen=True)
class Case:
    """Requests of one job; `adapter` is a name in the spec's file."""

    name: str
    job: Job
    requests: tuple[Request, ...]
    adapter: str = ""


def _requests(prompts: Sequence[Any], targets: Sequence[str] = ()) -> tuple[Request, ...]:
    texts = targets or [""] * len(prompts)
    pairs = enumerate(zip(prompts, texts, strict=True))
    return tuple(Request(id=number, prompt=one, target=target) for number, (one, target) in pairs)


_MENU = _requests([chat(f"Is it vegan? {dish}") for dish in DISHES])
_SAMPLED = Job(max_tokens=12, temperature=1.0, top_p=0.9, top_k=40, seed=7)
_HOT = _requests(["Soup is"], [" hot"])
_CHOICES = ("yes", "no", "it depends on who cooks")
CASES = (
    Case("greedy", Job(max_tokens=16), _MENU),
    Case("greedy again", Job(max_tokens=16), _MENU),
    Case("text", Job(max_tokens=8), _requests(["Once upon a time", "1 2 3 4 5"])),
    Case("sampled", _SAMPLED, _MENU),
    Case("sampled again", _SAMPLED, _MENU[::-1]),
    Case("another seed", replace(_SAMPLED, seed=8), _MENU),
    Case("stop", Job(max_tokens=24, stop=("e",)), _requests(["Once upon a time"])),
    Case("classify", Job(task="classify", choices=_CHOICES), _MENU),
    Case("json", Job(task="json", json_schema=SCHEMA, max_tokens=64), _MENU[:2]),
    Case("broken schema", Job(task="json", json_schema='{"type": "banana"}'), _MENU[:1]),
    Case("target", Job(task="logprob"), _requests([m.prompt for m in _MENU[:3]], list(_CHOICES))),
    Case(
        "most probable",
        Job(task="logprob", top_logprobs=3),
        _requests([m.prompt for m in _MENU[:3]], list(_CHOICES)),
    ),
    Case(
        "more than vLLM gives",
        Job(task="logprob", top_logprobs=21),
        _requests([_MENU[0].prompt], ["yes"]),
    ),
    Case("no reference", Job(task="logprob", top_logprobs=3), _MENU[:1]),
    Case("own tokens", Job(task="logprob"), _requests(list(DISHES[:3]))),
    Case("too long", Job(max_tokens=4), _requests(["x " * 3000, "short"])),
    Case("at the end", Job(max_tokens=400), _requests(["1 " * 245])),
    Case("stream", Job(max_tokens=12, stream=True), _MENU[:2]),
    Case("one", Job(max_tokens=16), _MENU, adapter="one"),
    Case("two", Job(max_tokens=16), _MENU, adapter="two"),
    Case("one classifies", Job(task="classify", choices=_CHOICES), _MENU, adapter="one"),
    *(Case(f"hot {name}", Job(task="logprob"), _HOT, adapter=name) for name in ("", "one", "two")),
    Case("base again", Job(max_tokens=16), _MENU),
    Case("no adapter there", Job(), _MENU[:1], adapter="missing"),
    Case("of another base", Job(), _MENU[:1], adapter="other"),
)
EMBED_CASES = (Case("embed", Job(task="embed"), _requests(list(DISHES[:3]))),)


def run_case(engine: Engine, case: Case, adapters: dict[str, str]) -> list[Answer]:
    job = replace(case.job, adapter=adapters[case.adapter] if case.adapter else "")
    for request in case.requests:
        engine.add(request, job)
    assert engine.unfinished == len(case.requests)
    answers: list[Answer] = []
    while engine.unfinished:
        answers += engine.step()
    return answers


def run(
    spec: EngineSpec, adapters: dict[str, str], encoder: dict[str, Any] | None = None
) -> dict[str, list[Answer]]:
    """Load an engine, run the table; return the answers of each case and close it."""
    engine = load_engine(spec)
    cases = EMBED_CASES if spec.embeds else CASES
    if encoder is not None:
        cases = tuple(
            replace(one, job=replace(one.job, encoder=Encoder(**encoder))) for one in cases
        )
    try:
        found = {case.name: run_case(engine, case, adapters) for case in cases}
        if not spec.embeds:
            _cancel(engine)
        return found
    finally:
        engine.close()


def _cancel(engine: Engine) -> None:
    """A cancelled request gets no answer, and the others do."""
    for request in _MENU:
        engine.add(request, Job(max_tokens=32))
    answers = list(engine.step())
    engine.cancel([0, 3])
    while engine.unfinished:
        answers += engine.step()
    assert sorted(answer.id for answer in answers) == [1, 2, 4, 5]
    assert engine.stats().running == 0
    assert engine.stats().waiting == 0


def main() -> None:
    with open(sys.argv[1]) as file:
        wanted = json.load(file)
    answers = run(EngineSpec(**wanted["spec"]), wanted["adapters"], wanted.get("encoder"))
    rows = {name: [asdict(one) for one in found] for name, found in answers.items()}
    with open(sys.argv[2], "w") as out:
        json.dump(rows, out)


if __name__ == "__main__":
    main()
