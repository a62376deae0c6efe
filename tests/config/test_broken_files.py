"""Each way a local file can be wrong: the row, and words that say what would work."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmops_kernel.config.assist.file_kinds import check_files
from llmops_kernel.config.problems import Problem
from tests.configs import training_config_from_dict

TEXT = '{"text": "a"}\n'
CHAT = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
GOOD_HOOK = "def format_example(row):\n    return row['a']\n"


@dataclass(frozen=True)
class Case:
    name: str
    rows: str | bytes
    line: int | None
    says: tuple[str, ...]
    data: dict[str, object] = field(default_factory=dict)


ROWS = [
    Case("empty", "", None, ("the file is empty",)),
    Case("blank lines", "\n  \n", None, ("only blank lines",)),
    Case("cut off", TEXT + '{"text": "a', 2, ("row 2: not JSON", "cut off")),
    Case("single quotes", TEXT + "{'text': 'a'}\n", 2, ("row 2", "column 2", "double quotes")),
    Case("comma at the end", TEXT + '{"text": "a"},\n', 2, ("row 2", "without a comma")),
    Case("trailing words", TEXT + "done\n", 2, ("row 2: not JSON", "one whole JSON object")),
    Case("one JSON list", '[\n{"text": "a"},\n{"text": "b"}\n]\n', None,
         ("one JSON document", "lines=True")),
    Case("one JSON list in a line", '[{"text": "a"}]\n', None, ("one JSON document",)),
    Case("indented JSON", '{\n  "text": "a"\n}\n', None, ("one JSON document",)),
    Case("row is a list", TEXT + "[1]\n", 2, ("row 2: a list where an object",)),
    Case("row is a text", TEXT + '"a"\n', 2, ("row 2: a text where an object",)),
    Case("row is null", TEXT + "null\n", 2, ("row 2: null where an object",)),
    Case("latin-1", TEXT.encode() + '{"text": "é"}\n'.encode("latin-1"), 2,
         ("row 2: not UTF-8", "save the file as UTF-8")),
    Case("blank lines count as lines", TEXT + "\n\n{}\n", 4, ("row 4",)),
    Case("unknown keys", '{"name": "a", "tags": 1}\n', 1,
         ("row 1: has only the keys name, tags", "`messages`", "format_example(row)")),
    Case("chat wanted", TEXT, 1, ("only the keys text", "chat rows need `messages`"),
         {"format": "chat"}),
    Case("text wanted", CHAT, 1, ("only the keys messages", "text rows need `text`"),
         {"format": "text"}),
    Case("half of a character", TEXT + '{"text": "cut \\ud83d"}\n', 2,
         ("row 2: `text` has half of a character",)),
    Case("text is NaN", TEXT + '{"text": NaN}\n', 2, ("row 2: `text` is nan (a missing value)",)),
    Case("text is a number", '{"text": 5}\n', 1, ("`text` is a number",)),
    Case("prompt alone", '{"prompt": "a"}\n', 1, ("only the keys prompt", "`completion`")),
    Case("messages is a text", '{"messages": "hi"}\n', 1, ("`messages` is a text, not a list",)),
    Case("messages is empty", '{"messages": []}\n', 1, ("`messages` is empty",)),
    Case("message is a text", '{"messages": ["hi"]}\n', 1, ("message 1 is a text",)),
    Case("no role", '{"messages": [{"content": "a"}]}\n', 1, ("`role` of message 1 is missing",)),
    Case("content is null", '{"messages": [{"role": "user", "content": null}]}\n', 1,
         ("`content` of message 1 is null",)),
    Case("sharegpt sender", '{"conversations": [{"from": "tool", "value": "a"}]}\n', 1,
         ("`from` of turn 1 is 'tool'", "format_example(row)")),
    Case("sharegpt value", '{"conversations": [{"from": "human"}]}\n', 1,
         ("turn 1 has no text `value`",)),
    Case("sharegpt is empty", '{"conversations": []}\n', 1, ("`conversations` is empty",)),
    Case("alpaca output", '{"instruction": "a", "output": null}\n', 1, ("`output` is null",)),
    Case("alpaca input", '{"instruction": "a", "input": 3, "output": "b"}\n', 1,
         ("`input` is a number", "leave it out")),
    Case("alpaca wanted", CHAT, 1, ("alpaca rows need `instruction` and `output`",),
         {"format": "alpaca"}),
    Case("completion is null", '{"prompt": "a", "completion": null}\n', 1,
         ("`completion` is null",)),
    Case("no such column", '{"q": "a", "a": "b"}\n', 1,
         ("has no column answer, only the keys a, q", "data.columns"),
         {"columns": {"prompt": "q", "completion": "answer"}}),
]  # fmt: skip


@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.name)
def test_broken_rows(case: Case, tmp_path: Path):
    content = case.rows if isinstance(case.rows, bytes) else case.rows.encode()
    (tmp_path / "rows.jsonl").write_bytes(content)
    problem = only(check(tmp_path, data={"train": "rows.jsonl", **case.data}))
    assert problem.path == "data.train"
    assert problem.line == case.line
    for fragment in case.says:
        assert fragment in str(problem)
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]


HOOKS = [
    Case("syntax", "def format_example(row)\n    return row\n", 1,
         ("not Python", "expected ':'", "`def format_example(row)`")),
    Case("indentation", "def callbacks():\nreturn []\n", 2, ("not Python", "indented block")),
    Case("misspelt", "\ndef format_exmaple(row):\n    return row\n", 2,
         ("no hook is called format_exmaple", "did you mean format_example?")),
    Case("no hook", "def helper(row):\n    return row\n", None,
         ("defines no hook", "format_example(row)", "callbacks()")),
    Case("nothing", "", None, ("defines no hook",)),
    Case("no argument", "def format_example():\n    return ''\n", 1,
         ("takes nothing, but is called with (row)", "`def format_example(row):`")),
    Case("one too many", "def format_example(row, tokenizer):\n    return ''\n", 1,
         ("takes row, tokenizer",)),
    Case("old metric", "def compute_metrics(predictions, references):\n    return {}\n", 1,
         ("called with (predictions, references, rows)",)),
    Case("needs a name", "def build_model(config, *, extra):\n    return None\n", 1,
         ("needs extra by name",)),
    Case("callbacks with one", "def callbacks(trainer):\n    return []\n", 1,
         ("takes trainer, but is called with nothing",)),
    Case("async", "async def format_example(row):\n    return ''\n", 1, ("is async",)),
    Case("null byte", b"x = 1\0\n", None, ("null bytes",)),
]  # fmt: skip


@pytest.mark.parametrize("case", HOOKS, ids=lambda case: case.name)
def test_broken_hooks(case: Case, tmp_path: Path):
    content = case.rows if isinstance(case.rows, bytes) else case.rows.encode()
    (tmp_path / "hooks.py").write_bytes(content)
    (tmp_path / "rows.jsonl").write_text(TEXT)
    problem = only(check(tmp_path, hooks="hooks.py"))
    assert (problem.path, problem.line) == ("hooks.file", case.line)
    for fragment in case.says:
        assert fragment in str(problem)


@pytest.mark.parametrize(
    "source",
    [
        "def format_example(row, scale=1):\n    return ''\n",
        "def compute_metrics(*all):\n    return {}\n",
        "from mine import format_example\n",
        "from mine import *\n",
        "try:\n    from a import callbacks\nexcept ImportError:\n    callbacks = None\n",
        "build_model = lambda config: None\n",
        "import functools\n@functools.cache\ndef format_example(a, b, c):\n    return ''\n",
    ],
)
def test_hooks_that_may_work_are_let_through(source: str, tmp_path: Path):
    (tmp_path / "hooks.py").write_text(source)
    (tmp_path / "rows.jsonl").write_text(TEXT)
    assert check(tmp_path, hooks="hooks.py") == []


def test_missing_files_name_their_neighbours(tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text(TEXT)
    (tmp_path / "hooks.py").write_text(GOOD_HOOK)
    found = check(
        tmp_path,
        data={"train": "data/trian.jsonl", "eval": "data/nothing-like-it.parquet"},
        hooks="hook.py",
        model="./models/mine",
    )
    text = "\n".join(map(str, found))
    assert len(found) == 4
    assert "hooks.file: no such file (value hook.py); did you mean hooks.py?" in text
    assert "did you mean train.jsonl?" in text
    assert "there are: train.jsonl" in text
    assert f"the folder {tmp_path / 'models'} does not exist either" in text


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ("tiny-qwen2", "imdb"),
        ("meta-llama/Llama-3.2-1B", "tatsu-lab/alpaca"),
        ("gpt2", "s3://bucket/rows.jsonl"),
        ("org/name", "gs://bucket/rows.parquet"),
    ],
)
def test_what_only_the_hub_or_a_store_knows_is_left_to_them(model: str, data: str, tmp_path: Path):
    assert check(tmp_path, model=model, data=data) == []


def test_a_path_without_ending_is_distinguished_from_a_hub_id_by_its_neighbours(tmp_path: Path):
    (tmp_path / "data" / "train").mkdir(parents=True)
    problem = only(check(tmp_path, data="data/trian"))
    assert "did you mean train?" in str(problem)
    assert check(tmp_path, data="data/xyz") == []


def test_rows_with_the_same_fault_are_one_problem(tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text(TEXT + "{}\n" * 12)
    found = only(check(tmp_path))
    assert found.line == 2
    assert "row 2: has no keys (12 of 13 rows are broken)" in str(found)


def test_only_three_faults_are_shown_and_all_broken_rows_are_counted(tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text(TEXT + "1\n2\n[]\nnull\n{}\n" * 4)
    found = check(tmp_path)
    assert [problem.line for problem in found] == [2, 4, 5]
    assert "null where an object is needed (20 of 21 rows are broken)" in str(found[-1])


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("rows.jsonl", TEXT.encode("utf-16"), "the file is UTF-16, not UTF-8"),
        ("rows.csv", "text\na\n".encode("utf-16"), "the file is UTF-16, not UTF-8"),
        ("rows.jsonl", b"\x1f\x8b\x08\n\n", "the file is compressed with gzip"),
        ("rows.json", b"PK\x03\x04\n", "the file is a zip archive"),
    ],
)
def test_a_file_that_is_no_text_is_one_problem(
    tmp_path: Path, name: str, content: bytes, what: str
):
    (tmp_path / name).write_bytes(content)
    assert what in str(only(check(tmp_path, data=name)))


def test_broken_rows_that_will_be_skipped_are_no_problem_unless_all_are(tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text(TEXT + "{}\n{\n")
    skipping = {"train": "rows.jsonl", "on_error": "skip"}
    assert check(tmp_path, data=skipping) == []
    (tmp_path / "rows.jsonl").write_text("{}\n{\n")
    assert [problem.line for problem in check(tmp_path, data=skipping)] == [1, 2]


def test_a_pattern_may_name_the_files(tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text(TEXT)
    assert check(tmp_path, data="*.jsonl") == []
    assert "no such file" in str(only(check(tmp_path, data="*.parquet")))


def test_only_the_rows_that_are_used_are_read(tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text(TEXT + "{}\n")
    assert check(tmp_path, data={"train": "rows.jsonl", "max_rows": 1}) == []


def test_a_hook_may_take_rows_of_any_shape_but_not_broken_json(tmp_path: Path):
    (tmp_path / "hooks.py").write_text(GOOD_HOOK)
    (tmp_path / "rows.jsonl").write_text('{"name": 1}\n{broken}\n')
    problem = only(check(tmp_path, hooks="hooks.py"))
    assert problem.line == 2


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"messages": [{"role": "user", "content": "a"}]}', "the chat has no answer at its end"),
        ('{"text": "a"}', "plain text has no answer"),
    ],
)
def test_generated_answers_need_held_out_ones(row: str, says: str, tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text(CHAT)
    (tmp_path / "eval.jsonl").write_text(row)
    data = {"train": "rows.jsonl", "eval": "eval.jsonl"}
    assert check(tmp_path, data=data) == []
    problem = only(check(tmp_path, data=data, evaluation={"generate": True}))
    assert problem.path == "data.eval"
    assert says in problem.message
    unused = row.replace("{", '{"weight": 0, ', 1)  # The run leaves it out as well.
    (tmp_path / "eval.jsonl").write_text(f"{CHAT.strip()}\n{unused}\n")
    assert check(tmp_path, data=data, evaluation={"generate": True}) == []


@pytest.mark.parametrize("rows", [TEXT, CHAT, '{"prompt": "a", "completion": "b"}\n'])
def test_good_rows_pass(rows: str, tmp_path: Path):
    (tmp_path / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + rows.encode() + b"\r\n" + rows.encode())
    assert check(tmp_path) == []


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    (tmp_path / "rows.xlsx").write_text("a,b\n1,2\n")
    assert "files ending in .xlsx are not read" in str(only(check(tmp_path, data="rows.xlsx")))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", "prompt,completion\na,b\n"),
        ("rows.tsv", "text\tn\na\t1\n"),
        ("rows.txt", "a\nb\n"),
        ("rows.json", '\n[{"text": "a"},\n{"text": "b"}]'),
        ("rows.json", '{"text": "a"}\n{"text": "b"}\n'),
        ("rows.ndjson", '{"text": "a"}\n'),
    ],
)
def test_other_formats_of_tables_pass(tmp_path: Path, name: str, content: str):
    (tmp_path / name).write_text(content)
    assert check(tmp_path, data=name) == []


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("rows.csv", "a,b\n1,2\n", "has only the columns"),
        ("rows.csv", "a" * 140_000, "is not a header of columns"),
        ("rows.csv", "a" * 2_000, "is not a header of columns (a name with 2,000 characters)"),
        ("rows.json", '[{"text": "a"}, {"b": 1}]', "row 2"),
        ("rows.json", '[{"text": "a"}, 7]', "row 2: a number where an object is needed"),
        ("rows.json", '[{"text": "a"}, {"text": ]', "the list is not JSON"),
    ],
)
def test_what_is_wrong_in_other_formats(tmp_path: Path, name: str, content: str, says: str):
    (tmp_path / name).write_text(content)
    assert says in str(only(check(tmp_path, data=name)))


def test_an_empty_folder_is_refused(tmp_path: Path):
    (tmp_path / "rows").mkdir()
    assert "the folder is empty" in str(only(check(tmp_path, data="./rows")))


def test_parquet(tmp_path: Path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["a"]}), path)
    assert check(tmp_path, data="rows.parquet") == []
    pq.write_table(pa.table({"a": [1]}), path)
    assert "only the columns a; auto rows need" in str(only(check(tmp_path, data="rows.parquet")))
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    assert "has no rows" in str(only(check(tmp_path, data="rows.parquet")))
    path.write_bytes(b"PAR1 cut off")
    assert "cannot be read as Parquet" in str(only(check(tmp_path, data="rows.parquet")))


def test_a_local_model_needs_a_config_and_weights(tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (tmp_path / "rows.jsonl").write_text(TEXT)
    assert "has no config.json" in str(only(check(tmp_path, model="mine")))
    (folder / "config.json").write_text("{}")
    assert "has no weights" in str(only(check(tmp_path, model="mine")))
    (folder / "model.safetensors").write_bytes(b"")
    assert check(tmp_path, model="mine") == []
    (folder / "adapter_config.json").write_text("{}")  # Which Transformers takes before the model.
    assert "both a whole model and an adapter" in str(only(check(tmp_path, model="mine")))


ADAPTER = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
SAME = {"type": "lora", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}


@pytest.mark.parametrize(
    ("files", "method", "says"),
    [
        ({}, SAME, ""),
        ({}, {**SAME, "type": "qlora"}, ""),
        (
            {},
            {**SAME, "target_modules": "all-linear"},
            "",
        ),  # The model knows which layers it means.
        ({}, "full", ""),  # It is merged first.
        ({}, "lora", "with r=16 (it has 4), lora_alpha=32 (it has 8)"),
        ({}, {**SAME, "target_modules": ["k_proj"]}, "target_modules=[k_proj] (it has [q_proj])"),
        ({"use_dora": True}, SAME, "use_dora=false (it has true)"),
        ({"peft_type": "IA3"}, SAME, "an adapter of type IA3"),
        ({"base_model_name_or_path": None}, SAME, "does not name the base model"),
    ],
)
def test_the_folder_of_an_adapter_is_trained_further_with_its_own_settings(
    tmp_path: Path, files: dict[str, object], method: object, says: str
):
    (tmp_path / "mine").mkdir()
    (tmp_path / "rows.jsonl").write_text(TEXT)
    settings = {**ADAPTER, "base_model_name_or_path": "tiny-llama", **files}
    (tmp_path / "mine" / "adapter_config.json").write_text(json.dumps(settings))
    assert "cannot be read" in str(only(check(tmp_path, model="mine", method=method)))
    (tmp_path / "mine" / "adapter_model.safetensors").write_bytes(b"")
    found = check(tmp_path, model="mine", method=method)
    assert says in str(only(found)) if says else found == []


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"vocab_size": 10}, ""),
        ({"vocab_size": 9}, ""),  # Only the token of an image has no embedding.
        ({"vocab_size": 8}, "<|pad|> is 8, and there are 8 embeddings"),
        ({"vocab_size": 7}, "<|user|> is 7, <|pad|> is 8, and there are 7 embeddings"),
        ({"text_config": {"vocab_size": 8}}, "<|pad|> is 8"),
        ({}, ""),
    ],
)
def test_a_tokenizer_with_more_tokens_than_embeddings(
    tmp_path: Path, config: dict[str, object], says: str
):
    """Training ended with an IndexError at its first step, on a GPU with a device assert."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (tmp_path / "rows.jsonl").write_text(TEXT)
    tokens = [{"id": 7, "content": "<|user|>"}, {"id": 8, "content": "<|pad|>"}]
    tokens.append({"id": 9, "content": "<image>"})
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens, "model": {}}))
    (folder / "tokenizer_config.json").write_text('{"pad_token": {"content": "<|pad|>"}}')
    (folder / "chat_template.jinja").write_text("<|user|>{{ messages }}")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"")
    found = check(tmp_path, model="mine")
    assert says in str(only(found)) if says else found == []


def test_a_misspelt_catalogue_name_is_no_hub_id(tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text(TEXT)
    problem = only(check(tmp_path, model="SmolLM2-135M-Instuct"))
    assert "did you mean SmolLM2-135M-Instruct?" in str(problem)


def test_hooks_outside_the_workspace_do_not_travel(tmp_path: Path):
    (tmp_path / "hooks.py").write_text(GOOD_HOOK)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "rows.jsonl").write_text(TEXT)
    problem = only(check(tmp_path / "work", hooks="../hooks.py"))
    assert "outside the workspace" in str(problem)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_hundred_thousand_rows_are_checked_in_two_seconds(tmp_path: Path):
    row = json.dumps(
        {"messages": [{"role": r, "content": "x" * 200} for r in ("user", "assistant")]}
    )
    (tmp_path / "rows.jsonl").write_text((row + "\n") * 100_000)
    begun_s = time.process_time()
    assert check(tmp_path) == []
    assert time.process_time() - begun_s < 2


def check(workspace: Path, **sections: object) -> list[Problem]:
    config = {"model": "tiny-llama", "data": "rows.jsonl", **sections}
    return check_files(training_config_from_dict(config), workspace)


def only(problems: list[Problem]) -> Problem:
    assert len(problems) == 1, "\n".join(map(str, problems))
    return problems[0]


def test_columns_of_other_names(tmp_path: Path):
    columns = {"instruction": "q", "output": "a"}
    (tmp_path / "rows.jsonl").write_text('{"q": "one", "a": "two"}\n')
    pq.write_table(pa.table({"q": ["one"], "a": ["two"]}), tmp_path / "rows.parquet")
    for name in ("rows.jsonl", "rows.parquet"):
        assert check(tmp_path, data={"train": name, "columns": columns}) == []
        wrong = {"train": name, "columns": {**columns, "input": "more"}}
        assert "has no column more" in str(only(check(tmp_path, data=wrong)))
        assert "keys a, q" in str(
            only(check(tmp_path, data={"train": name, "columns": {"text": "b"}}))
        )
