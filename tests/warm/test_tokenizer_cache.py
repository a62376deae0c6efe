"""A fork has the tokenizer that its server has loaded, and never another than it would load."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from llmops_kernel.warm.loaded_files import facts_of
from llmops_kernel.warm.tokenizer_cache import TokenizerRequest, ask, is_short
from tests.waiting import until
from tests.warm.conftest import Node, is_alive

LIBRARIES = ("tokenizers", "torch", "accelerate", "transformers.models.auto.tokenization_auto")
TAKE = """
import ast, sys
from llmops_kernel.warm.for_jobs import cached_tokenizer
from llmops_kernel.warm.tokenizer_cache import TokenizerRequest
wanted = TokenizerRequest(**ast.literal_eval(sys.argv[1]))
for _ in range(2):
    found = cached_tokenizer(wanted)
    print(None if found is None else found("b c a")["input_ids"], end=" ")
"""


@pytest.fixture(scope="module")
def served(short_root: Path) -> Iterator[Node]:
    node = Node.create(short_root / "tokenizers")
    node.start(*LIBRARIES)
    yield node.ready(timeout_s=120)
    node.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "abc")
    return tmp_path


def write(folder: Path, words: Sequence[str]) -> None:
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "a"}'
    )


def wanted(folder: Path, *, user: str = "ann", limit: int = 2**30) -> TokenizerRequest:
    return TokenizerRequest(
        model="a model",
        source=str(folder),
        revision=None,
        folder=str(folder),
        user=user,
        limit_bytes=limit,
        facts=facts_of(folder),
    )


def taken(node: Node, it: TokenizerRequest, *, warm: bool = True) -> str:
    """What a process that starts now gets, at the first time and at the second."""
    done = node.run("-c", TAKE, repr(asdict(it)), warm=warm)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def kept(node: Node, it: TokenizerRequest) -> str:
    ask(str(node.folder.root), it)
    return until(lambda: (found := taken(node, it)) != "None None" and found)


def test_a_fork_gets_it_once(served: Node, folder: Path) -> None:
    it = wanted(folder)
    assert taken(served, it) == "None None"
    assert kept(served, it) == "[1, 2, 0] None"
    assert taken(served, it, warm=False) == "None None"
    status = served.status()
    assert status is not None
    model, num_bytes, used_s = status["tokenizers"][-1]
    assert (model, num_bytes) == ("a model", it.num_bytes)
    assert 0 <= time.time() - used_s < 30


def test_changed_files_are_read_again(served: Node, folder: Path) -> None:
    before = wanted(folder)
    kept(served, before)
    write(folder, "cba")
    after = wanted(folder)
    assert before.facts != after.facts
    assert taken(served, after) == "None None"
    assert kept(served, after) == "[1, 0, 2] None"
    assert taken(served, before) == "None None"


def test_a_file_that_changes_before_it_is_loaded_is_not_kept(served: Node, folder: Path) -> None:
    it = wanted(folder)
    write(folder, "cba")
    assert_not_kept(served, it)


def test_another_user_or_revision_gets_nothing(served: Node, folder: Path) -> None:
    it = wanted(folder)
    kept(served, it)
    assert taken(served, replace(it, user="bob")) == "None None"
    assert taken(served, replace(it, revision="1" * 40)) == "None None"


def test_no_more_memory_than_allowed(served: Node, folder: Path) -> None:
    size = wanted(folder).num_bytes
    assert size == 13 * (folder / "tokenizer.json").stat().st_size
    assert_not_kept(served, wanted(folder, limit=size - 1))
    first, second = wanted(folder, user="u1"), wanted(folder, user="u2", limit=2 * size - 1)
    kept(served, first)
    kept(served, second)
    assert taken(served, first) == "None None"


def test_of_five_the_least_used_goes(served: Node, folder: Path) -> None:
    all_five = [wanted(folder, user=f"user {number}") for number in range(5)]
    for it in all_five[:4]:
        kept(served, it)
    ask(str(served.folder.root), all_five[0])  # As each run does that has used it.
    kept(served, all_five[4])
    assert [taken(served, it) != "None None" for it in all_five] == [True, False, True, True, True]


@pytest.mark.parametrize("text", ["", "{", '{"version": "1.0", "model": {"type": "BPE"}}'])
def test_a_file_that_cannot_be_read_harms_nobody(served: Node, folder: Path, text: str) -> None:
    (folder / "tokenizer.json").write_text(text)
    server = served.server_pid
    assert_not_kept(served, wanted(folder))
    assert served.server_pid == server


def test_a_trial_that_hangs_stops_no_start(served: Node, folder: Path) -> None:
    write(folder, [f"word{number}" for number in range(300_000)])  # So that it takes a moment.
    ask(str(served.folder.root), wanted(folder))
    (trial,) = until(lambda: children(served.server_pid))
    os.kill(trial, signal.SIGSTOP)
    assert served.reported() == "warm"
    assert is_alive(trial)
    time.sleep(3.2)  # Its alarm comes after 3 s, and is seen when it goes on.
    os.kill(trial, signal.SIGCONT)
    until(lambda: not children(served.server_pid))
    assert taken(served, wanted(folder)) == "None None"


def test_modules_that_it_needed_are_watched_as_those_before(own_node: Node, folder: Path) -> None:
    """Forks have them: a file of one that is edited must replace the server."""
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    made = Tokenizer(models.BPE({"a": 0, "b": 1, "c": 2}, []))
    made.save(str(folder / "tokenizer.json"))
    own_node.start(*LIBRARIES)
    own_node.ready(timeout_s=120)
    it = wanted(folder)
    loaded = "import sys; print(any('tokenization_qwen2' in name for name in sys.modules))"
    assert own_node.run("-c", loaded).stdout == b"False\n"
    kept(own_node, it)
    assert own_node.run("-c", loaded).stdout == b"True\n"
    old = own_node.server_pid
    found = find_spec("transformers.models.qwen2.tokenization_qwen2")
    assert found is not None
    file = Path(str(found.origin))
    before = file.stat()
    os.utime(file)
    try:
        until(lambda: own_node.server_is_new(old), timeout_s=120)
    finally:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_another_server_loads_it_again(own_node: Node, folder: Path) -> None:
    own_node.start(*LIBRARIES)
    own_node.ready(timeout_s=120)
    it = wanted(folder)
    kept(own_node, it)
    old = own_node.server_pid
    os.kill(old, signal.SIGKILL)
    until(lambda: own_node.server_is_new(old), timeout_s=120)
    assert taken(own_node, it) == "None None"
    assert kept(own_node, it) == "[1, 2, 0] None"


def test_a_server_without_the_libraries_keeps_nothing(node: Node, folder: Path) -> None:
    assert_not_kept(node, wanted(folder))


def test_what_needs_another_package_is_not_kept(own_node: Node, folder: Path) -> None:
    """A job may have its own copy of that package, which a fork could not load any more."""
    own_node.start("tokenizers", "transformers")
    own_node.ready(timeout_s=120)
    assert_not_kept(own_node, wanted(folder))
    assert own_node.run("-c", "import sys; print('torch' in sys.modules)").stdout == b"False\n"


def test_nobody_listens(tmp_path: Path, folder: Path) -> None:
    ask(str(tmp_path / "no server"), wanted(folder))


@pytest.mark.parametrize(
    ("num_bytes", "memory", "short"),
    [
        (0, [], False),
        (0, [(5, 100)], False),
        (0, [(4, 100)], True),
        (10, [(14, 100)], True),
        (10, [(15, 100)], False),
        (10, [(50, 100), (14, 100)], True),
    ],
)
def test_memory_is_short_before_it_is_used_up(
    num_bytes: int, memory: list[tuple[int, int]], *, short: bool
) -> None:
    assert is_short(num_bytes, memory) == short


def assert_not_kept(node: Node, it: TokenizerRequest) -> None:
    """The server has answered another request since, and has no child at work."""
    ask(str(node.folder.root), it)
    node.server_pid  # noqa: B018
    until(lambda: not children(node.server_pid))
    assert taken(node, it) == "None None"


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()]
