"""A model that was kept is the one that would be read, or it is read."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.errors import ModelError
from llmops_kernel.store.kept_models import KeptModels
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.train.model.kept import KEPT, MAPPED, Keeping
from llmops_kernel.train.model.load import load_model
from tests.messages import missing

Config = Callable[..., Any]
Load = Callable[..., tuple[Any, str]]


@pytest.fixture
def source(tiny_llama: Path, tmp_path: Path) -> Path:
    """A copy of the model that a test may change."""
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


@pytest.fixture
def load(source: Path, tmp_path: Path, make_config: Config) -> Load:
    """Load the model as a worker does; return it and the words of its phase."""

    def loaded(
        *,
        user: str = "ann",
        rank: int = 0,
        keep: int = 2**30,
        most_s: float = 60.0,
        dtype: str = "float32",
        **more: Any,
    ) -> tuple[Any, str]:
        config = make_config(model={"id": str(source), "dtype": dtype}, **more)
        context = WorkerContext(
            run_id="r",
            folder=tmp_path,
            workspace=tmp_path,
            cache=tmp_path / "cache",
            user=user,
            keep_bytes=keep,
            local_rank=rank,
        )
        words: list[str] = []
        keeping = Keeping.of(str(source), config, context)
        if isinstance(keeping, Keeping):
            keeping = replace(keeping, most_s=most_s)
        model = load_model(str(source), config, Hooks(), keeping=keeping, say=words.append)
        return model, words[0]

    return loaded


def same(one: Any, other: Any) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def first_weight(model: Any) -> torch.Tensor:
    found: torch.Tensor = next(model.parameters())
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_second_run_maps_what_the_first_has_read(load: Load, method: str, dtype: str) -> None:
    torch.manual_seed(3)
    read, words = load(dtype=dtype, method=method)
    assert words == KEPT
    torch.manual_seed(3)
    mapped, words = load(dtype=dtype, method=method)
    assert words == MAPPED
    assert same(read, mapped)  # With LoRA's random weights: no random number was drawn.
    assert type(read) is type(mapped)
    assert read.training == mapped.training
    assert read.config.to_dict() == mapped.config.to_dict()
    tokens = torch.arange(9)[None]
    assert torch.equal(read(tokens).logits, mapped(tokens).logits)


def test_tied_weights_stay_tied(load: Load) -> None:
    load(method="full")
    mapped, words = load(method="full")
    assert words == MAPPED
    ids = [p.data_ptr() for p in (mapped.lm_head.weight, mapped.model.embed_tokens.weight)]
    assert (ids[0] == ids[1]) is mapped.config.tie_word_embeddings


def test_training_one_changes_neither_the_file_nor_another(load: Load) -> None:
    load()
    one, _ = load()
    other, _ = load()
    before = first_weight(other).clone()
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.add_(1.0)
    third, words = load()
    assert words == MAPPED
    assert torch.equal(first_weight(other), before)
    assert torch.equal(first_weight(third), before)
    assert not torch.equal(first_weight(one), before)


def test_changed_weights_are_read_even_if_size_and_time_are_as_before(
    load: Load, source: Path
) -> None:
    load(method="full")
    path = source / "model.safetensors"
    info, content = path.stat(), bytearray(path.read_bytes())
    content[-4:] = b"\x00\x00\x80\x3f"
    path.write_bytes(content)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    changed, words = load(method="full")
    assert missing(words, "read again", "changed", "kept again") == []
    again, words = load(method="full")
    assert words == MAPPED
    assert same(changed, again)
    fresh, _ = load(method="full", keep=0)
    assert same(fresh, again)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "generation_config.json"])
def test_any_other_changed_file_is_noticed(load: Load, source: Path, name: str) -> None:
    load()
    path = source / name
    path.write_text(path.read_text() + "\n")
    assert load()[1].startswith("read again")


def test_a_file_that_came_or_went_is_noticed(load: Load, source: Path) -> None:
    load()
    (source / "more.json").write_text("{}")
    assert load()[1].startswith("read again")
    (source / "more.json").unlink()
    assert load()[1].startswith("read again")


def test_another_user_gets_nothing_of_it(load: Load) -> None:
    load(user="ann")
    assert load(user="bob")[1] == KEPT
    assert load(user="ann")[1] == load(user="bob")[1] == MAPPED


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"parallelism": {"strategy": "zero3", "num_workers": 2}}, "zero3 shards the weights"),
        ({"parallelism": {"strategy": "fsdp", "num_workers": 2}}, "fsdp shards the weights"),
        ({"method": "qlora"}, "qlora packs the weights"),
    ],
)
def test_a_model_that_is_loaded_in_parts_is_not_kept(
    make_config: Config, source: Path, tmp_path: Path, sections: dict[str, Any], reason: str
) -> None:
    context = WorkerContext(run_id="r", folder=tmp_path, workspace=tmp_path, keep_bytes=1)
    why = Keeping.of(str(source), make_config(model=str(source), **sections), context)
    assert isinstance(why, str)
    assert why.startswith(reason)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"trust_remote_code": True}, "code of the model may do anything"),
        ({"id": "org/model"}, "the hub is asked for a newer revision"),
        ({"id": "org/model", "revision": "main"}, "the hub is asked for a newer revision"),
        ({"id": "org/model", "revision": "a" * 40}, "the hub is asked for a newer revision"),
    ],
)
def test_a_model_that_may_be_another_one_next_time_is_not_kept(
    make_config: Config, source: Path, tmp_path: Path, model: dict[str, Any], reason: str
) -> None:
    model = {"id": str(source), **model}
    context = WorkerContext(run_id="r", folder=tmp_path, workspace=tmp_path, keep_bytes=1)
    why = Keeping.of(model["id"], make_config(model=model), context)
    assert isinstance(why, str)
    assert why.startswith(reason)


def test_weights_that_its_files_lack_are_not_random_ones(load: Load, source: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(source / "model.safetensors")
    name = next(name for name in weights if "q_proj" in name)
    del weights[name]
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=rf"random: {re.escape(name)} is not in its files"):
        load()


def test_a_damaged_file_is_read_anew_and_replaced(load: Load, tmp_path: Path) -> None:
    load()
    [kept] = KeptModels(tmp_path / "cache").all()
    os.truncate(kept.path, kept.num_bytes // 2)
    assert load()[1].startswith("read from its files: what was kept is damaged")
    assert load()[1] == MAPPED


def test_one_worker_of_a_node_keeps_it_and_all_map_it(load: Load, tmp_path: Path) -> None:
    assert load(rank=1)[1] == ""
    assert KeptModels(tmp_path / "cache").all() == ()
    load(rank=0)
    assert load(rank=1)[1] == MAPPED


def test_nothing_is_kept_or_said_where_it_is_turned_off(load: Load, tmp_path: Path) -> None:
    assert load(keep=0)[1] == ""
    assert not (tmp_path / "cache" / "kept-models").exists()


def test_a_limit_that_is_too_small_is_the_reason(load: Load) -> None:
    assert load(keep=100)[1].startswith("read from its files, not kept: it has")


def test_a_run_does_not_wait_for_a_slow_disk(load: Load, tmp_path: Path) -> None:
    words = "read from its files, not kept: the disk took more than 0 s"
    assert load(most_s=0.0)[1] == words
    assert list((tmp_path / "cache" / "kept-models").iterdir()) == []


def test_a_run_with_hooks_reads_the_model(load: Load) -> None:
    load()
    words = "read from its files, not kept: hooks may change what is loaded"
    assert load(hooks="hooks.py")[1] == words


def test_a_link_to_nothing_is_no_file_of_the_model(load: Load, source: Path) -> None:
    load()
    (source / "gone.json").symlink_to(source / "nothing")
    assert load()[1] == MAPPED


def test_quantised_weights_are_unpacked_anew(load: Load, source: Path) -> None:
    path = source / "config.json"
    facts = json.loads(path.read_text())
    facts["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": False}
    path.write_text(json.dumps(facts))
    assert "its weights are quantised" in load()[1]
