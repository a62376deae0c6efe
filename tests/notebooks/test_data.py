"""The shipped menu data: what the datasheet promises about rows, labels, splits and spelling."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llmops_kernel.config.assist.file_kinds import check_files
from llmops_kernel.kinds import score_config
from llmops_kernel.kinds.reading import from_path
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.score.evaluate.row_scorer import RowScorer
from tests.configs import load_training_config

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
DATA = NOTEBOOKS / "data"
SPLITS = ("train", "eval")

Row = dict[str, Any]


def load_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


generator = load_module(DATA / "make_menu_data.py")
hooks = load_module(NOTEBOOKS / "menu_hooks.py")
RULES = generator.read_rules()
DISHES = generator.read_dishes()


def read_rows(split: str) -> list[Row]:
    lines = (DATA / f"menu-{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


ROWS = {split: read_rows(split) for split in SPLITS}
ALL_ROWS = ROWS["train"] + ROWS["eval"]


def dish_number(row: Row) -> int:
    return int(row["id"].split("-")[1])


def words_list() -> set[str]:
    lines = (DATA / "words.txt").read_text(encoding="utf-8").splitlines()
    return {line for line in lines if not line.startswith("#")}


def test_enough_rows_and_dishes() -> None:
    assert len(ROWS["train"]) >= 700
    assert len(ROWS["eval"]) >= 160
    assert len(DISHES) >= 300
    assert len({name for dish in DISHES for name in dish.variants[0].names}) >= len(DISHES)


@pytest.mark.parametrize("split", SPLITS)
def test_rows_have_the_documented_fields(split: str) -> None:
    for row in ROWS[split]:
        assert list(row) == ["id", "name", "description", "tags"]
        assert list(row["tags"]) == ["cuisine", "course", "diet", "allergens"]
        assert re.fullmatch(r"menu-\d{3}-\d+", row["id"])
        assert row["name"] == row["name"].strip() != ""
        assert 12 <= len(row["description"]) <= 200, row["description"]


@pytest.mark.parametrize("split", SPLITS)
def test_tags_come_from_closed_sorted_vocabularies(split: str) -> None:
    for row in ROWS[split]:
        tags = row["tags"]
        assert tags["cuisine"] in {dish.cuisine for dish in DISHES}
        assert tags["course"] in generator.COURSES
        for field, vocabulary in (("diet", generator.DIETS), ("allergens", generator.ALLERGENS)):
            assert tags[field] == sorted(set(tags[field]))
            assert set(tags[field]) <= set(vocabulary)


def test_every_label_is_used_in_both_splits() -> None:
    for split in SPLITS:
        counts = generator.statistics(ROWS[split])
        assert set(counts["cuisine"]) == {dish.cuisine for dish in DISHES}
        assert set(counts["course"]) == set(generator.COURSES)
        assert set(counts["allergens"]) == {*generator.ALLERGENS, "none"}
        assert len(counts["diet"]) == len(generator.DIETS) + 1


def test_no_duplicates_and_nothing_in_both_splits() -> None:
    assert len({row["id"] for row in ALL_ROWS}) == len(ALL_ROWS)
    pairs = {(row["name"].lower(), row["description"].lower()) for row in ALL_ROWS}
    assert len(pairs) == len(ALL_ROWS)
    descriptions = [{row["description"].lower() for row in ROWS[split]} for split in SPLITS]
    assert not descriptions[0] & descriptions[1]


def test_held_out_rows_have_new_dishes_and_new_wordings() -> None:
    known = {dish_number(row) for row in ROWS["train"]}
    unseen = [row for row in ROWS["eval"] if dish_number(row) not in known]
    assert len({dish_number(row) for row in unseen}) >= 40
    assert len(ROWS["eval"]) - len(unseen) >= 90
    known_names = {row["name"] for row in ROWS["train"]}
    assert not known_names & {row["name"] for row in unseen}


def test_the_generator_writes_the_shipped_files_byte_for_byte(tmp_path: Path) -> None:
    script = DATA / "make_menu_data.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], check=True, capture_output=True)
    for split in SPLITS:
        name = f"menu-{split}.jsonl"
        assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes()


def test_every_ingredient_has_a_rule() -> None:
    assert generator.unknown_ingredients(DISHES, rules=RULES) == []


@pytest.mark.parametrize("split", SPLITS)
def test_labels_follow_from_the_words_of_the_row(split: str) -> None:
    for row in ROWS[split]:
        text = f"{row['name']} . {row['description']}"
        diet, allergens = generator.diet_and_allergens(text, rules=RULES)
        assert (diet, allergens) == (row["tags"]["diet"], row["tags"]["allergens"]), text


@pytest.mark.parametrize("split", SPLITS)
def test_every_allergen_is_justified_by_an_ingredient_of_the_dish(split: str) -> None:
    dishes = {dish.number: dish for dish in DISHES}
    for row in ROWS[split]:
        variants = [v for v in dishes[dish_number(row)].variants if row["name"] in v.names]
        derived = [
            generator.diet_and_allergens(" . ".join(v.ingredients + v.spoken), rules=RULES)
            for v in variants
        ]
        assert (row["tags"]["diet"], row["tags"]["allergens"]) in derived, row


@pytest.mark.parametrize(
    ("text", "diet", "allergens"),
    [
        ("coconut milk, rice noodles, chickpea flour", ["vegan", "vegetarian"], []),
        ("milk, noodles", ["vegetarian"], ["gluten", "milk"]),
        ("corn tortillas, anchovies", ["pescatarian"], ["fish"]),
        ("flour tortilla, carnitas pork", [], ["gluten"]),
        ("goat cheese, walnuts", ["vegetarian"], ["milk", "nuts"]),
        ("sponge fingers", ["vegetarian"], ["egg", "gluten"]),
    ],
)
def test_rules_take_the_longest_match(text: str, diet: list[str], allergens: list[str]) -> None:
    assert generator.diet_and_allergens(text, rules=RULES) == (diet, allergens)


def test_the_words_list_is_sorted_and_has_nothing_stale() -> None:
    listed = [w for w in (DATA / "words.txt").read_text("utf-8").splitlines() if w[0] != "#"]
    assert listed == sorted(set(listed))
    text = " ".join(f"{row['name']} {row['description']}" for row in ALL_ROWS).lower()
    used = set(re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", text))
    assert set(listed) - used == set()


def test_spelling() -> None:
    if shutil.which("aspell") is None:
        pytest.skip("aspell is not installed; the words list itself is checked without it")
    text = "".join(f"{row['name']} {row['description']}\n" for row in ALL_ROWS)
    command = ["aspell", "--lang=en_GB", "--encoding=utf-8", "list"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.skip(f"aspell has no British dictionary here: {result.stderr.strip()}")
    assert {word.lower() for word in result.stdout.split()} - words_list() == set()


def test_hook_and_data_agree_on_the_vocabularies() -> None:
    assert set(hooks.WORDS["cuisine"]) == {dish.cuisine for dish in DISHES}
    assert set(hooks.WORDS["course"]) == set(generator.COURSES)
    assert set(hooks.WORDS["diet"]) == set(generator.DIETS)
    assert set(hooks.WORDS["allergens"]) == set(generator.ALLERGENS)


def answers(rows: list[Row]) -> list[str]:
    return [hooks.format_example(row)["messages"][-1]["content"] for row in rows]


def test_the_formatted_answers_score_full_marks() -> None:
    metrics = hooks.compute_metrics(answers(ALL_ROWS), answers(ALL_ROWS), ALL_ROWS)
    assert metrics == dict.fromkeys(metrics, 1.0)
    assert set(metrics) == {
        "field_accuracy",
        "cuisine_accuracy",
        "course_accuracy",
        "diet_accuracy",
        "allergens_accuracy",
        "exact_match",
    }


ROW: Row = {
    "name": "x",
    "description": "y",
    "tags": {
        "cuisine": "italian",
        "course": "main",
        "diet": ["vegan", "vegetarian"],
        "allergens": ["gluten", "milk"],
    },
}


@pytest.mark.parametrize(
    ("answer", "field_accuracy"),
    [
        ("italian | main | vegan | gluten, milk", 1.0),
        ("  ITALIAN|Main |vegetarian, vegan| Milk,gluten ", 1.0),
        ("Cuisine: Italian\nCourse: main\nDiet: vegan\nAllergens: milk and gluten.", 1.0),
        ("Course: main | Cuisine: Italian | Diet: vegan | Allergens: milk, gluten", 1.0),
        ("It is an Italian main, vegan, with gluten and milk.", 1.0),
        ("italian | main | vegan | none", 0.75),
        ("italian | main | vegan", 0.75),
        ("italian | main | vegetarian | gluten", 0.5),
        ("italian french | main | vegan | gluten, milk", 0.75),
        ("", 0.0),
        ("|||", 0.0),
        ("no idea \x00 { } [", 0.0),
    ],
)
def test_scores_of_answers(answer: str, field_accuracy: float) -> None:
    metrics = hooks.compute_metrics([answer], [""], [ROW])
    assert metrics["field_accuracy"] == pytest.approx(field_accuracy)
    assert metrics["exact_match"] == float(field_accuracy == 1.0)


def test_none_means_an_empty_list_and_silence_does_not() -> None:
    row = {**ROW, "tags": {**ROW["tags"], "diet": [], "allergens": []}}
    said = hooks.compute_metrics(["italian | main | none | none"], [""], [row])
    silent = hooks.compute_metrics(["italian main"], [""], [row])
    assert (said["diet_accuracy"], said["allergens_accuracy"]) == (1.0, 1.0)
    assert (silent["diet_accuracy"], silent["allergens_accuracy"]) == (0.0, 0.0)


def test_no_rows_score_zero() -> None:
    assert hooks.compute_metrics([], [], [])["field_accuracy"] == 0.0


def test_the_means_of_the_scored_rows_are_the_metrics_of_all() -> None:
    said = ["italian | main | vegan | gluten, milk", "french | main | none | none"]
    scored = [hooks.score_row(text, None, ROW) for text in said]
    assert [one["field_accuracy"] for one in scored] == [1.0, 0.25]
    means = {name: sum(one[name] for one in scored) / 2 for name in scored[0]}
    assert means == hooks.compute_metrics(said, ["", ""], [ROW, ROW])


def test_the_score_config_is_valid_and_each_row_gets_the_hooks_numbers() -> None:
    config = from_path(kind_named("score"), NOTEBOOKS / "menu.score.yaml")
    assert score_config.check_files(config, NOTEBOOKS) == []
    of_run = from_path(kind_named("score"), NOTEBOOKS / "menu.score.yaml", ["model.run=last"])
    assert "with the output of run last" in score_config.effect(of_run)[0]
    scorer = RowScorer(config, hooks.score_row)
    for row in ROWS["eval"]:
        [answer] = answers([row])
        found = scorer.row(answer, answer, row).values
        assert found["exact_match"] == found["field_accuracy"] == 1.0


def test_the_recipe_loads_and_its_files_are_sound() -> None:
    config = load_training_config(NOTEBOOKS / "lora.train.yaml")
    assert config.name == "menu-tags"
    assert config.evaluation.generate
    assert config.evaluation.at_start
    assert config.evaluation.at_end
    assert check_files(config, NOTEBOOKS) == []
