"""A model that was written anew is another one, and adapters are."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.score.engines.checkpoint import version_of
from llmops_kernel.score.setup import EngineChoice, engine_choice, job_of, model_version
from llmops_kernel.store.record import RunSpec


def write(folder: Path, names: tuple[str, ...], content: str = "x") -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(content)


def touch(path: Path) -> None:
    later = path.stat().st_mtime_ns + 1_000_000
    os.utime(path, ns=(later, later))


def choice(model: str) -> EngineChoice:
    values = {"model": model, "input": "rows.jsonl", "prompt": "{text}", "engine": "transformers"}
    spec = RunSpec(run_id="r", attempt=1, config=values, run_root="", submitted_s=0.0)
    config = ScoreConfig.model_validate(values)
    return engine_choice(spec, config, num_gpus=0, num_nodes=1, score_python="")


def test_a_standing_engine_does_not_answer_for_new_weights(tmp_path: Path) -> None:
    """A full fine-tune that was retried was scored with the weights of its first attempt."""
    model = tmp_path / "model"
    write(model, ("config.json", "model.safetensors"))
    first = choice(str(model)).deployment.name(0)
    assert choice(str(model)).deployment.name(0) == first, "the next job shares the engine"
    touch(model / "model.safetensors")
    assert choice(str(model)).deployment.name(0) != first


def test_what_changes_the_version_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path, ("config.json", "model.safetensors", "tokenizer.json"))
    seen = [model_version(str(tmp_path))]
    assert len(seen[0]) == 12
    (tmp_path / "config.json").write_text("longer")
    seen.append(model_version(str(tmp_path)))
    write(tmp_path, ("chat_template.jinja",))
    seen.append(model_version(str(tmp_path)))
    assert len(set(seen)) == 3
    write(tmp_path, ("README.md", "trainer_state.json", ".model.safetensors.tmp", "_metrics.json"))
    assert model_version(str(tmp_path)) == seen[-1]


def test_behind_a_url_the_store_says_it(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/model"
    files = fsspec.filesystem("memory")
    files.pipe_file(f"/{tmp_path.name}/model/config.json", b"{}")
    first = model_version(url)
    assert first == model_version(url) != ""
    files.pipe_file(f"/{tmp_path.name}/model/config.json", b"{ }")
    assert model_version(url) != first


def test_what_cannot_be_listed_has_no_version(tmp_path: Path) -> None:
    sources = ("owner/name", "hf://owner/name", str(tmp_path / "x"), "memory://no/x", "nope://x")
    assert [model_version(one) for one in sources] == [""] * 5


def test_an_adapter_is_another_one_too(tmp_path: Path) -> None:
    write(tmp_path, ("adapter_config.json", "adapter_model.safetensors"))
    seen = {version_of(str(tmp_path))}
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        touch(tmp_path / name)
        seen.add(version_of(str(tmp_path)))
    assert len(seen) == 3
    config = ScoreConfig.model_validate({"model": "m", "input": "x", "prompt": "{a}"})
    first = job_of(config, adapter=f"file://{tmp_path}")
    touch(tmp_path / "adapter_config.json")
    assert job_of(config, adapter=f"file://{tmp_path}") != first
    assert job_of(config, adapter=str(tmp_path)).adapter_version == ""
