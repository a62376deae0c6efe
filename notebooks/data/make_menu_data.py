"""Writes menu-train.jsonl and menu-eval.jsonl from dishes/ and rules.txt.

Run `python notebooks/data/make_menu_data.py`; the same files come out each time. DATASHEET.md
explains the idea.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 20
UNSEEN_DISHES = 4  # per cuisine, never in training
UNSEEN_ROWS = 2  # held-out rows of each such dish
REWORDED_ROWS = 8  # per cuisine: held-out rows of dishes that training knows in other words
TRAIN_ROWS = 2  # of each dish; one per variant where a dish has more

COURSES = ("dessert", "main", "salad", "side", "soup", "starter")
DIETS = ("pescatarian", "vegan", "vegetarian")
ALLERGENS = ("egg", "fish", "gluten", "milk", "nuts", "sesame", "shellfish", "soy")
SOURCES = ("plant", "animal", "seafood", "meat")  # each suits fewer diets than the one before
DIET_OF_SOURCE = {
    "plant": ["vegan", "vegetarian"],
    "animal": ["vegetarian"],
    "seafood": ["pescatarian"],
    "meat": [],
}

PATTERNS = (
    "{What} with {list}, {how}.",
    "{What} with {list}. {How}.",
    "{List}. {How}.",
    "{What}: {list}. {How}.",
    "{What}, {how}. With {list}.",
    "{List} – {what}, {how}.",
    "Our {what}: {list}; {how}.",
    "{What}. Made with {list}, {how}.",
    "{What} ({list}).",
    "{How}: {what} with {list}.",
    "{list}, {how}",
)
EVAL_ONLY_PATTERNS = (
    "From our kitchen: {what}, {list}, {how}.",
    "{What}, {how}. What goes in: {list}.",
    "Today: {list}. {What}. {How}.",
)
CLOSERS = {
    "starter": ("Good to start.", "Made for sharing.", "A small plate."),
    "soup": ("By the bowl.", "Warm or cold days alike.", "One big ladle."),
    "salad": ("Light and fresh.", "Crisp to the last bite.", "Cold and bright."),
    "main": ("A full meal.", "A filling plate.", "Dinner for one."),
    "side": ("Goes beside anything.", "A small extra.", "On the side."),
    "dessert": ("To finish.", "Save some room.", "For the sweet tooth."),
    "any": ("A regular favourite.", "Cooked to order.", "Travels well.", "Back on the menu."),
}


@dataclass(frozen=True)
class Rule:
    source: str
    allergens: frozenset[str]


@dataclass(frozen=True)
class Variant:
    """One way to order a dish; `spoken` are ingredients that its name or prose already says."""

    names: tuple[str, ...]
    ingredients: tuple[str, ...]
    spoken: tuple[str, ...]


@dataclass(frozen=True)
class Dish:
    number: int
    cuisine: str
    course: str
    what: str
    how: str
    variants: tuple[Variant, ...]


Rules = dict[tuple[str, ...], Rule]
Row = dict[str, Any]


def read_rules(path: Path = HERE / "rules.txt") -> Rules:
    rules: Rules = {}
    for line in _content_lines(path):
        source, allergens, words = (part.strip() for part in line.split("|"))
        rule = Rule(source, frozenset(allergens.split()))
        if source not in SOURCES or not rule.allergens <= set(ALLERGENS):
            raise ValueError(f"{path.name}: unknown source or allergen in {line!r}")
        for word in words.split(","):
            phrase = tuple(_tokens(word))
            if rules.get(phrase, rule) != rule:
                raise ValueError(f"{path.name}: {word.strip()!r} has two different rules")
            rules[phrase] = rule
    return rules


def read_dishes(folder: Path = HERE / "dishes") -> list[Dish]:
    lines = [(p.stem, line) for p in sorted(folder.glob("*.txt")) for line in _content_lines(p)]
    return [
        _dish(line, number=n, cuisine=cuisine) for n, (cuisine, line) in enumerate(lines, start=1)
    ]


def found_rules(text: str, *, rules: Rules) -> list[Rule]:
    """Rules whose words occur in the text, longest match first, left to right."""
    tokens, found, at = _tokens(text), [], 0
    longest = max(map(len, rules))
    while at < len(tokens):
        for length in range(min(longest, len(tokens) - at), 0, -1):
            rule = _lookup(tokens[at : at + length], rules)
            if rule:
                found.append(rule)
                break
        at += length
    return found


def diet_and_allergens(text: str, *, rules: Rules) -> tuple[list[str], list[str]]:
    """What the rules conclude from the food words of a text."""
    found = found_rules(text, rules=rules)
    source = max((rule.source for rule in found), key=SOURCES.index, default="plant")
    return list(DIET_OF_SOURCE[source]), sorted({a for rule in found for a in rule.allergens})


def unknown_ingredients(dishes: list[Dish], *, rules: Rules) -> list[str]:
    """Ingredients about which rules.txt says nothing, so that no label rests on a misspelling."""
    variants = chain.from_iterable(dish.variants for dish in dishes)
    named = {i for variant in variants for i in variant.ingredients + variant.spoken}
    return sorted(i for i in named if not found_rules(i, rules=rules))


def make_rows(dishes: list[Dish], *, rules: Rules, seed: int = SEED) -> tuple[list[Row], list[Row]]:
    """Training and held-out rows, shuffled; no (name, description) occurs twice."""
    rng = random.Random(seed)
    seen: set[tuple[str, str]] = set()
    train: list[Row] = []
    held_out: list[Row] = []
    for cuisine in sorted({dish.cuisine for dish in dishes}):
        own = [dish for dish in dishes if dish.cuisine == cuisine]
        rng.shuffle(own)
        for position, dish in enumerate(own):
            unseen = position < UNSEEN_DISHES
            reworded = UNSEEN_DISHES <= position < UNSEEN_DISHES + REWORDED_ROWS
            num_train = 0 if unseen else max(TRAIN_ROWS, len(dish.variants))
            num_eval = UNSEEN_ROWS if unseen else int(reworded)
            rows = list(_dish_rows(dish, num_train, num_eval, rules=rules, seen=seen, rng=rng))
            train += rows[:num_train]
            held_out += rows[num_train:]
    rng.shuffle(train)
    rng.shuffle(held_out)
    return train, held_out


def _dish_rows(
    dish: Dish,
    num_train: int,
    num_eval: int,
    *,
    rules: Rules,
    seen: set[tuple[str, str]],
    rng: random.Random,
) -> Iterator[Row]:
    first = rng.randrange(len(dish.variants))
    for index in range(num_train + num_eval):
        variant = dish.variants[(first + index) % len(dish.variants)]
        patterns = PATTERNS if index < num_train else PATTERNS + EVAL_ONLY_PATTERNS * 2
        diet, allergens = diet_and_allergens(
            " . ".join((*variant.ingredients, *variant.spoken)), rules=rules
        )
        name, description = _words(
            dish, variant, patterns, labels=(diet, allergens), rules=rules, seen=seen, rng=rng
        )
        seen.add((name, description))
        yield {
            "id": f"menu-{dish.number:03d}-{index + 1}",
            "name": name,
            "description": description,
            "tags": {
                "cuisine": dish.cuisine,
                "course": dish.course,
                "diet": diet,
                "allergens": allergens,
            },
        }


def _words(
    dish: Dish,
    variant: Variant,
    patterns: tuple[str, ...],
    *,
    labels: tuple[list[str], list[str]],
    rules: Rules,
    seen: set[tuple[str, str]],
    rng: random.Random,
) -> tuple[str, str]:
    """A name and a description from which the rules find exactly the dish's own labels."""
    for attempt in range(400):
        name = rng.choice(variant.names)
        fewest = min(len(variant.ingredients), 2 + attempt // 40)
        count = rng.randint(fewest, len(variant.ingredients))
        chosen = sorted(rng.sample(range(len(variant.ingredients)), count))
        if rng.random() < 0.3:
            rng.shuffle(chosen)
        description = _describe(
            dish, [variant.ingredients[i] for i in chosen], pattern=rng.choice(patterns), rng=rng
        )
        text = f"{name} . {description}"
        if (name, description) not in seen and diet_and_allergens(text, rules=rules) == labels:
            return name, description
    raise ValueError(f"No wording of {variant.names[0]!r} shows {labels}; saw e.g. {text!r}")


def _describe(dish: Dish, ingredients: list[str], *, pattern: str, rng: random.Random) -> str:
    joined = ", ".join(ingredients)
    if len(ingredients) > 1 and rng.random() < 0.6:
        joined = ", ".join(ingredients[:-1]) + " and " + ingredients[-1]
    description = pattern.format(
        what=dish.what,
        What=_capital(dish.what),
        how=dish.how,
        How=_capital(dish.how),
        list=joined,
        List=_capital(joined),
    )
    if description.endswith(".") and rng.random() < 0.3:
        description += " " + rng.choice(CLOSERS[dish.course] + CLOSERS["any"])
    return description


def _dish(line: str, *, number: int, cuisine: str) -> Dish:
    names, course, ingredients, what, how = (part.strip() for part in line.split("|"))
    if course not in COURSES:
        raise ValueError(f"{cuisine}.txt: unknown course {course!r} in {line!r}")
    parts = [part.strip() for part in ingredients.split(",")]
    choices = next((part.split("+") for part in parts if "+" in part), [""])
    variants = tuple(
        Variant(
            names=tuple(n.strip().replace("{}", _label(choice)) for n in names.split("/")),
            ingredients=tuple(choice if "+" in p else p for p in parts if not p.startswith("~")),
            spoken=tuple(p[1:] for p in parts if p.startswith("~")),
        )
        for choice in choices
    )
    return Dish(number, cuisine, course, what, how, variants)


def _label(choice: str) -> str:
    words = choice.removeprefix("minced ").split()
    return " ".join(map(_capital, words))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _content_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def _tokens(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?|[.,;:()–]", text.lower())


def _lookup(tokens: list[str], rules: Rules) -> Rule | None:
    *head, last = tokens
    for ending in ("", "s", "es"):
        if last.endswith(ending):
            rule = rules.get((*head, last[: len(last) - len(ending)]))
            if rule:
                return rule
    return None


def write_jsonl(rows: list[Row], path: Path) -> None:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def statistics(rows: list[Row]) -> dict[str, Counter[str]]:
    """Counts of every label; `none` stands for an empty list."""
    tags = [row["tags"] for row in rows]
    return {
        "cuisine": Counter(tag["cuisine"] for tag in tags),
        "course": Counter(tag["course"] for tag in tags),
        "diet": Counter(", ".join(tag["diet"]) or "none" for tag in tags),
        "allergens": Counter(chain.from_iterable(tag["allergens"] or ["none"] for tag in tags)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the two files")
    out: Path = parser.parse_args().out
    rules, dishes = read_rules(), read_dishes()
    if unknown := unknown_ingredients(dishes, rules=rules):
        parser.error(f"rules.txt has no word for {', '.join(unknown)}; add each to a rule")
    for name, rows in zip(("train", "eval"), make_rows(dishes, rules=rules), strict=True):
        write_jsonl(rows, out / f"menu-{name}.jsonl")
        print(f"menu-{name}.jsonl: {len(rows)} rows")
        for field, counts in statistics(rows).items():
            print(f"  {field}: " + ", ".join(f"{k} {v}" for k, v in counts.most_common()))


if __name__ == "__main__":
    main()
