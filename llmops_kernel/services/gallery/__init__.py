"""Example configs with their data: what `llmops init --example` writes."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from llmops_kernel.errors import ConfigError
from llmops_kernel.services.demo import menu_data
from llmops_kernel.services.new_file import write_user_file

# --- Rows of the examples, made from the menu data that is shipped with the package ---
# The menu data are dishes with their cuisine, course, diet and allergens (its DATASHEET.md says
# where they come from). Each example needs them in the shape that its config explains.


Row = dict[str, Any]

_SYSTEM = "You answer questions about the dishes of a menu in one short sentence."


def chat(row: Row) -> str:
    """Return a conversation of two questions and two answers, as a JSON line."""
    tags = row["tags"]
    kind = f"It is {_kind(tags)}"
    turns = [
        ("system", _SYSTEM),
        ("user", f"{_dish(row)} What kind of dish is it?"),
        ("assistant", f"{kind}, {_diet(tags)}."),
        ("user", "Which allergens does it contain?"),
        ("assistant", f"It contains {_listed(tags['allergens']) or 'none of the common ones'}."),
    ]
    return _line({"messages": [{"role": role, "content": text} for role, text in turns]})


def instruction(row: Row) -> str:
    """Return a row with `instruction`, `input` and `output`, as a JSON line."""
    question = "Name the cuisine, the course and the allergens of this dish."
    tags = row["tags"]
    answer = f"{tags['cuisine']}, {tags['course']}, {_listed(tags['allergens']) or 'no allergens'}"
    return _line({"instruction": question, "input": _dish(row), "output": answer})


def text(row: Row) -> str:
    """Return a dish as one line of plain text."""
    tags = row["tags"]
    return f"{_dish(row)} It is {_kind(tags)}, {_diet(tags)}."


def preference(row: Row) -> str:
    """Return a question with a right answer and one that was made worse on purpose."""
    tags = row["tags"]
    cuisines = ("thai", "french", "mexican")
    wrong = {
        "cuisine": next(name for name in cuisines if name != tags["cuisine"]),
        "course": "soup" if tags["course"] == "dessert" else "dessert",
        "diet": [] if tags["diet"] else ["vegan"],
        "allergens": ["nuts"] if "nuts" not in tags["allergens"] else [],
    }
    chosen, rejected = (
        f"It is {_kind(each)}, {_diet(each)}. It contains"
        f" {_listed(each['allergens']) or 'none of the common allergens'}."
        for each in (tags, wrong)
    )
    question = f"{_dish(row)} What kind of dish is it, and which allergens does it contain?"
    return _line({"prompt": question, "chosen": chosen, "rejected": rejected})


def labelled(row: Row) -> str:
    """Return a dish with its course, as a JSON line."""
    return _line({"text": _dish(row), "label": row["tags"]["course"]})


def searched(row: Row) -> str:
    """Return what a guest describes, and the dish on the menu that it is, as a JSON line."""
    return _line({"query": row["description"], "positive": f"{row['name']}, {_kind(row['tags'])}"})


def made(shape: Callable[[Row], str], source: Path) -> str:
    """Return the text of a data file: each row of `source` in another shape, one a line."""
    lines = source.read_text(encoding="utf-8").splitlines()
    return "".join(f"{shape(json.loads(line))}\n" for line in lines)


def _dish(row: Row) -> str:
    return f"{row['name']}: {row['description']}"


def _kind(tags: Row) -> str:
    cuisine = tags["cuisine"].capitalize()
    return f"{'an' if cuisine[0] in 'AEIOU' else 'a'} {cuisine} {tags['course']}"


def _diet(tags: Row) -> str:
    diet = "vegan" if "vegan" in tags["diet"] else "".join(tags["diet"][:1])
    return diet or "with meat"


def _listed(items: Iterable[str]) -> str:
    *first, last = [*items] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False)


_FILES: Final = Path(__file__).with_name("files")
Shape = Callable[[Row], str]


def _pair(stem: str, ending: str, shape: Shape) -> dict[str, tuple[Shape, str]]:
    return {f"data/{stem}-{part}.{ending}": (shape, part) for part in ("train", "eval")}


_CHATS = _pair("chat", "jsonl", chat)
_INSTRUCTIONS = _pair("alpaca", "jsonl", instruction)
_TEXTS = _pair("menu", "txt", text)
_PREFERENCES = _pair("preference", "jsonl", preference)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A config of the gallery with the files that it names."""

    config: str
    title: str
    """Subject of the example, in a few words."""
    data: Mapping[str, tuple[Shape, str]]
    """Data file -> the shape of its rows and the part of the menu data that they come from."""
    code: tuple[str, ...] = ()
    """Further files, as they are: code, other configs, data that a model has made."""

    @property
    def ending(self) -> str:
        """Return `.train.yaml`: the ending that the name of its config must have."""
        return "".join(PurePosixPath(self.config).suffixes)


EXAMPLES: Final[Mapping[str, Example]] = {
    "chat": Example(config="chat.train.yaml", title="Conversations, LoRA", data=_CHATS),
    "alpaca": Example(
        config="alpaca.train.yaml",
        title="Instructions with answers, LoRA",
        data=_INSTRUCTIONS,
    ),
    "continued-pretraining": Example(
        config="continued-pretraining.train.yaml",
        title="Plain text, all weights, packed sequences",
        data=_TEXTS,
    ),
    "dpo": Example(
        config="dpo.train.yaml", title="Preferences between two answers, DPO", data=_PREFERENCES
    ),
    "distill": Example(
        config="distill.train.yaml",
        title="What a teacher thinks of answers, distillation",
        data=_INSTRUCTIONS,
        code=("teacher.score.yaml", "data/distill-train.jsonl", "data/distill-eval.jsonl"),
    ),
    "reward": Example(
        config="reward.train.yaml",
        title="A reward model from preferences",
        data=_PREFERENCES,
    ),
    "classify": Example(
        config="classify.train.yaml",
        title="Labels of texts",
        data=_pair("course", "jsonl", labelled),
    ),
    "two-tower": Example(
        config="two-tower.train.yaml",
        title="Vectors of queries and of what they look for, InfoNCE",
        data=_pair("dish", "jsonl", searched),
    ),
    "zero3-offload": Example(
        config="zero3-offload.train.yaml",
        title="A large model over several workers and host memory",
        data=_CHATS,
    ),
    "script": Example(
        config="train.script.yaml",
        title="A PyTorch script of your own",
        data={"data/menu-train.txt": _TEXTS["data/menu-train.txt"]},
        code=("train.py",),
    ),
}


@dataclass(frozen=True, kw_only=True)
class WrittenExample:
    """Files of an example on disk."""

    config: Path
    others: tuple[Path, ...] = field(default=())


def write_example(
    name: str, path: str | Path | None = None, *, force: bool = False
) -> WrittenExample:
    """Write an example's config, data and code.

    `path` is a folder (default: the current one), or the config's own file name. Raises ConfigError
    for an unknown name, and if a file exists with other content, unless `force`: then nothing is
    written. Examples share data files, so several can be written into one folder.
    """
    example = _example_named(name)
    config = _config_path(example, path)
    texts = {
        config: (_FILES / example.config).read_text(encoding="utf-8"),
        **_files(example, config),
    }
    changed = {file: text for file, text in texts.items() if not _contains(file, text)}
    existing = [str(file) for file in changed if file.exists()]
    if existing and not force:
        raise ConfigError(
            f"Nothing was written: {', '.join(existing)} already exist"
            f"{'s' if len(existing) == 1 else ''}.",
            remedy="choose another folder, or overwrite with --force (`force=True` in Python)",
        )
    for file, text in changed.items():
        write_user_file(file, text, force=force, with_folder=True)
    return WrittenExample(config=config, others=tuple(file for file in texts if file != config))


def _contains(file: Path, text: str) -> bool:
    return file.is_file() and file.read_bytes() == text.encode()


def _example_named(name: str) -> Example:
    if name in EXAMPLES:
        return EXAMPLES[name]
    close = difflib.get_close_matches(name, EXAMPLES, n=1)
    hint = f"use {close[0]}; " if close else ""
    raise ConfigError(
        f"There is no example {name!r}.", remedy=f"{hint}there are: {', '.join(EXAMPLES)}"
    )


def _config_path(example: Example, path: str | Path | None) -> Path:
    target = Path(path or ".")
    if target.suffix not in (".yaml", ".yml"):
        return target / example.config
    if not target.name.endswith((example.ending, example.ending.replace("yaml", "yml"))):
        raise ConfigError(
            f"{target.name} is not the name of such a config.",
            remedy=f"use a name that ends with {example.ending}, or name a folder",
        )
    return target


def _files(example: Example, config: Path) -> dict[Path, str]:
    source = menu_data()
    data = {
        config.parent / name: made(shape, source / f"menu-{part}.jsonl")
        for name, (shape, part) in example.data.items()
    }
    code = {config.parent / name: (_FILES / name).read_text("utf-8") for name in example.code}
    return {**code, **data}
