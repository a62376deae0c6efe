"""Rows are tokenised once for all runs of the same rows, and again when anything differs."""

from __future__ import annotations

import ast
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llmops_kernel
from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.models import answer_spans
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data import examples
from llmops_kernel.train.data.dataset import Dataset, load_dataset
from llmops_kernel.train.data.examples import Example, Tokenised
from llmops_kernel.train.data.sources import DataSources, Source
from llmops_kernel.train.data.token_cache import KeyOf, TokenCache, code_files, fingerprint
from llmops_kernel.train.hooks import Hooks
from tests.train.conftest import rows

MANY = 1500
"""Rows of more than 64 KiB together."""
Load = Callable[..., Dataset]


def write(path: Path, count: int = MANY, *, broken: bool = False) -> None:
    lines = [json.dumps(row) for row in rows(count)]
    path.write_text("\n".join(lines) + "\n" + ('{"prompt": 3\n' if broken else ""))


@pytest.fixture
def load(workspace: Path, tmp_path: Path, make_config: Callable[..., Any], tokenizer: Any) -> Load:
    """Load a config's rows as a worker does; keyword arguments are fields of `data`."""

    def load(
        *, hooks: Hooks | None = None, local_rank: int = 0, seen: Any = None, **data: Any
    ) -> Dataset:
        context = WorkerContext(
            run_id="test",
            local_rank=local_rank,
            folder=tmp_path / "run",
            workspace=workspace,
            cache=tmp_path / "cache",
        )
        config = make_config(data={"train": "train.jsonl", **data})
        return load_dataset(
            config,
            DataSources(config.data, context.roots),
            tokenizer=seen or tokenizer,
            hooks=hooks or Hooks(),
            context=context,
        )

    write(workspace / "train.jsonl")
    return load


def test_the_second_run_finds_what_the_first_one_made(load: Load) -> None:
    first, second = load(), load()
    assert (first.is_kept, second.is_kept) == (False, True)
    assert second.train == first.train
    assert replace(second, is_kept=False) == first
    assert first.num_rows == MANY
    assert second.words == ("rows as tokenised by an earlier run",)


@pytest.mark.parametrize(
    "change",
    [
        {"loss_on": "all"},
        {"max_length": 30},
        {"long_texts": "cut"},
        {"max_rows": 1000},
        {"columns": {"prompt": "completion", "completion": "prompt"}},
        {"format": "prompt_completion"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_setting_makes_others(load: Load, change: dict[str, Any]) -> None:
    load()
    changed = load(**change)
    assert not changed.is_kept
    again = load(**change)
    assert again.is_kept
    assert again.train == changed.train
    assert again.num_rows == changed.num_rows


def test_packing_is_done_anew_with_rows_that_are_kept(load: Load) -> None:
    load(max_length=128)
    packed = load(max_length=128, packing=True)
    assert packed.is_kept
    assert len(packed.train) < MANY / 2


def test_a_changed_file_makes_others_and_the_old_content_finds_its_own(
    load: Load, workspace: Path
) -> None:
    load()
    before = (workspace / "train.jsonl").read_bytes()
    write(workspace / "train.jsonl", MANY + 1)
    assert load().num_rows == MANY + 1
    (workspace / "train.jsonl").write_bytes(before)
    back = load()
    assert (back.is_kept, back.num_rows) == (True, MANY)


def test_a_change_of_one_byte_with_the_same_size_and_time_is_seen(
    load: Load, workspace: Path
) -> None:
    load()
    path = workspace / "train.jsonl"
    info = path.stat()
    path.write_bytes(path.read_bytes().replace(b"is 7", b"is 8", 1))
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert not load().is_kept


def test_another_tokenizer_makes_others(load: Load, tiny_llama: Path) -> None:
    from transformers import AutoTokenizer

    load()
    other = AutoTokenizer.from_pretrained(str(tiny_llama))
    assert load(seen=other).is_kept
    other.chat_template += "\n"
    assert not load(seen=other).is_kept
    more = AutoTokenizer.from_pretrained(str(tiny_llama))
    more.add_tokens(["what is"])
    assert not load(seen=more).is_kept


def test_a_template_that_writes_the_day_is_kept_for_a_day(tiny_llama: Path) -> None:
    from transformers import AutoTokenizer

    one = AutoTokenizer.from_pretrained(str(tiny_llama))
    one.chat_template = "{{ strftime_now('%d %b %Y') }}" + one.chat_template
    today = fingerprint(one)
    assert today == fingerprint(one)
    one.chat_template = one.chat_template.replace("strftime_now", "raise_exception")
    assert fingerprint(one) != today


def test_a_tokenizer_in_python_has_none() -> None:
    class InPython:
        chat_template = None

    assert fingerprint(InPython()) is None


def test_rows_of_a_hook_are_kept_by_what_it_has_made_of_them(load: Load) -> None:
    called: list[str] = []
    words = ["said"]

    def hook(row: dict[str, str]) -> str:
        called.append(row["prompt"])
        return f"{words[0]}: {row['prompt']} {row['completion']}"

    hooks = Hooks(format_example=hook)
    first, second = load(hooks=hooks), load(hooks=hooks)
    assert (first.is_kept, second.is_kept) == (False, True)
    assert replace(second, is_kept=False) == first
    assert len(called) == 2 * MANY
    # The same code, with another result.
    words[0] = "asked"
    changed = load(hooks=hooks)
    assert not changed.is_kept
    assert changed.train != first.train
    assert load(hooks=Hooks(format_example=lambda row: hook(row))).is_kept
    assert not load(hooks=hooks, max_length=30).is_kept
    assert not load().is_kept  # Nor taken for rows without a hook.


def test_rows_that_a_hook_leaves_out_are_named_as_the_first_time(
    load: Load, workspace: Path
) -> None:
    """The file has a row that is not JSON, and the hook one that is no row."""
    write(workspace / "train.jsonl", broken=True)
    hooks = Hooks(format_example=lambda row: 7 if row["prompt"].endswith(" 0?") else row)
    first, second = (load(hooks=hooks, on_error="skip") for _ in range(2))
    assert second.is_kept
    assert first.num_skipped == second.num_skipped >= 2
    assert second.num_rows == first.num_rows


def test_few_rows_of_a_hook_are_not_kept(load: Load, workspace: Path, tmp_path: Path) -> None:
    hooks = Hooks(format_example=lambda row: {"text": row["prompt"]})
    for _ in range(2):
        assert not load(hooks=hooks, max_rows=64).is_kept
    assert not (tmp_path / "cache" / "tokens").exists()


def test_small_files_and_other_sources_are_not_kept(
    load: Load, workspace: Path, tmp_path: Path
) -> None:
    write(workspace / "train.jsonl", 64)
    assert not load().is_kept
    assert not load().is_kept
    (workspace / "folder").mkdir()
    write(workspace / "folder" / "train.jsonl")
    load(train="folder")
    assert not load(train="folder").is_kept
    assert not (tmp_path / "cache" / "tokens").exists()


def test_broken_rows_are_counted_and_named_as_the_first_time(load: Load, workspace: Path) -> None:
    write(workspace / "train.jsonl", broken=True)
    first, second = load(on_error="skip"), load(on_error="skip")
    assert second.is_kept
    assert first.num_skipped == second.num_skipped == 1


def test_one_worker_of_a_node_keeps_them(load: Load) -> None:
    load(local_rank=1)
    assert not load().is_kept
    assert load(local_rank=1).is_kept


def test_what_was_cut_off_is_made_again(load: Load, tmp_path: Path) -> None:
    first = load()
    (file,) = (tmp_path / "cache" / "tokens").glob("*.npz")
    content = file.read_bytes()
    for broken in (
        b"",
        b"PK",
        content[: len(content) // 2],
        content.replace(b"\x01\x00", b"\x02\x00"),
    ):
        file.write_bytes(broken)
        again = load()
        assert not again.is_kept
        assert again.train == first.train
        assert file.read_bytes() == content


def test_a_folder_that_cannot_be_written_is_no_error(load: Load, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tokens").write_text("a file")
    assert not load().is_kept
    assert load().num_rows == MANY


def test_others_cannot_read_them(load: Load, tmp_path: Path) -> None:
    load()
    assert (tmp_path / "cache" / "tokens").stat().st_mode & 0o077 == 0


def test_those_that_were_not_used_for_the_longest_time_are_deleted(tmp_path: Path) -> None:
    kept = TokenCache(tmp_path)
    some = Tokenised([Example([1] * 100, [2] * 100)] * 10, 0, 0, num_rows=10)
    kept.write("a", some)
    size = (tmp_path / "tokens" / "a.npz").stat().st_size
    kept = TokenCache(tmp_path, limit_bytes=int(2.5 * size))
    for key in "bc":
        time.sleep(0.01)
        assert kept.read("a") is not None  # Used: newer than b.
        time.sleep(0.01)
        kept.write(key, some)
    assert {path.stem for path in (tmp_path / "tokens").glob("*.npz")} == {"a", "c"}
    kept = TokenCache(tmp_path, limit_bytes=size - 1)
    kept.write("d", some)
    assert kept.read("d") is None


def test_a_file_that_changes_while_it_is_read_is_noticed(workspace: Path, tokenizer: Any) -> None:
    path = workspace / "train.jsonl"
    write(path)
    data = DataConfig(train="train.jsonl")
    keys = KeyOf(Source("train.jsonl", [workspace]), data=data, tokenizer=tokenizer)
    assert keys.key()
    assert keys.unchanged()
    write(path, MANY + 1)
    assert not keys.unchanged()
    path.unlink()
    assert not keys.unchanged()


tokens = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(-100, 2**31 - 1)), max_size=8)


@given(st.lists(tokens, min_size=1, max_size=8), st.lists(st.text(max_size=5), max_size=3))
def test_what_is_read_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, lists: list[Any], broken: list[str]
) -> None:
    examples = [Example([a for a, _ in one], [b for _, b in one]) for one in lists]
    some = Tokenised(examples, 3, 4, tuple(broken), num_rows=9)
    kept = TokenCache(tmp_path_factory.mktemp("kept"))
    kept.write("key", some)
    assert kept.read("key") == replace(some, is_kept=True)


def test_the_code_that_decides_what_is_trained_is_part_of_the_key() -> None:
    """Of all modules that these two import: kept tokens would outlive a correction of one."""
    neutral = ("config.models.", "errors", "metrics.events", "train.hooks")
    used = set()
    for module in (examples, answer_spans):
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("llmops_kernel."):
                used.add(str(node.module).removeprefix("llmops_kernel."))
    root = Path(llmops_kernel.__file__).parent
    files = {root / f"{name.replace('.', '/')}.py" for name in used if not name.startswith(neutral)}
    assert files
    assert files <= set(code_files())
