"""Which tokenizers the fork server is asked to keep. What it does then: tests/warm."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.model.tokenizer import KEPT, KeptTokenizer
from llmops_kernel.warm import tokenizer_cache
from llmops_kernel.warm.launcher import FORKED_ENV_VAR, START_REPORT_ENV_VAR
from llmops_kernel.warm.tokenizer_cache import TokenizerRequest

Config = Callable[..., Any]


@pytest.fixture
def folder(tiny_llama: Path, tmp_path: Path) -> Path:
    """A model whose tokenizer is worth it."""
    copied = Path(shutil.copytree(tiny_llama, tmp_path / "model"))
    add_tokens(copied, number=60_000)
    return copied


def add_tokens(folder: Path, *, number: int) -> None:
    """Words of the vocabulary that no merge makes, so no text gets them."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    # Else the library would number these behind all others.
    vocabulary |= {token["content"]: token["id"] for token in content["added_tokens"]}
    first = max(vocabulary.values()) + 1
    vocabulary |= {f"never made {first + count}": first + count for count in range(number)}
    path.write_text(json.dumps(content))


@pytest.fixture
def of(folder: Path, tmp_path: Path, make_config: Config) -> Callable[..., KeptTokenizer]:
    def made(
        *, keep: int = 2**30, rank: int = 0, model: dict[str, Any] | None = None, **sections: Any
    ) -> KeptTokenizer:
        config = make_config(model={"id": str(folder)} | (model or {}), **sections)
        context = WorkerContext(
            run_id="r",
            folder=tmp_path,
            workspace=tmp_path,
            user="ann",
            keep_bytes=keep,
            local_rank=rank,
        )
        return KeptTokenizer.of(config.model.id, config, context)

    return made


def test_a_large_one_is_kept_by_one_worker_of_a_node(
    of: Callable[..., KeptTokenizer], folder: Path
) -> None:
    first, second = of(), of(rank=1)
    assert isinstance(first.request, TokenizerRequest)
    assert first.request == second.request
    assert (first.is_writer, second.is_writer) == (True, False)
    assert (first.request.user, first.request.folder) == ("ann", str(folder))
    assert "tokenizer.json" in {name for name, *_ in first.request.facts}


@pytest.mark.parametrize(
    "sections",
    [
        {"keep": 0},
        {"model": {"trust_remote_code": True}},
        {"model": {"id": "someone/model"}},
        {"model": {"id": "someone/model", "revision": "main"}},
        {"model": {"id": "someone/model", "revision": "1" * 40}},
        {"hooks": {"file": "hooks.py"}},
    ],
    ids=["off", "code of the model", "hub", "branch", "not fetched yet", "hooks"],
)
def test_others_are_loaded_by_each_run(
    of: Callable[..., KeptTokenizer], sections: dict[str, Any]
) -> None:
    assert of(**sections).request is None


def test_a_small_one_is_loaded_faster_than_asked_for(
    of: Callable[..., KeptTokenizer], tiny_llama: Path
) -> None:
    assert of(model={"id": str(tiny_llama)}).request is None


def test_templates_in_a_folder_of_their_own_are_read_by_each_run(
    of: Callable[..., KeptTokenizer], folder: Path
) -> None:
    (folder / "additional_chat_templates").mkdir()
    assert of().request is None


def test_a_missing_folder_is_no_id_of_the_hub(of: Callable[..., KeptTokenizer]) -> None:
    assert of(model={"id": "/data/gone", "revision": "1" * 40}).request is None


@pytest.mark.parametrize("offline", [False, True])
def test_it_is_saved_as_one_that_the_run_has_loaded(
    of: Callable[..., KeptTokenizer],
    folder: Path,
    tmp_path: Path,
    make_config: Config,
    monkeypatch: pytest.MonkeyPatch,
    offline: bool,
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setenv(START_REPORT_ENV_VAR, "warm")
    monkeypatch.setenv(FORKED_ENV_VAR, str(os.getpid()))
    config, kept = make_config(model={"id": str(folder)}), of()
    assert kept.request is not None
    tokenizer_cache.add(kept.request)  # What the server does before the fork.
    saved = []
    for number in range(2):
        words: list[str] = []
        tokenizer = kept.tokenizer(str(folder), config, words.append)
        assert words == [KEPT] * (1 - number)  # It is there once, then it is loaded.
        tokenizer.save_pretrained(tmp_path / str(number))
        saved.append({p.name: p.read_text() for p in (tmp_path / str(number)).iterdir()})
    assert saved[0] == saved[1]
    assert f'"local_files_only": {str(offline).lower()}' in saved[0]["tokenizer_config.json"]


def test_a_folder_that_is_gone_is_left_to_who_loads_it(
    of: Callable[..., KeptTokenizer], folder: Path
) -> None:
    shutil.rmtree(folder)
    assert of().request is None
