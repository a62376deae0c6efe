"""Where `llmops demo` takes its config and data from, and how it ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel import score_env
from llmops_kernel.cli.demo import run_demo
from llmops_kernel.config.reading.load import check_files, load_training_config
from llmops_kernel.errors import ConfigError
from llmops_kernel.kinds import score_config as score_files
from llmops_kernel.kinds.reading import from_path
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.services.demo import FILES, demo_config, menu_data, score_config

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The package as a wheel installs it, without a clone around it."""
    package = tmp_path / "site-packages" / "llmops_kernel"
    for name in FILES:
        target = package / "demo_workspace" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(NOTEBOOKS / name, target)
    return package


def test_a_clone_trains_its_own_files() -> None:
    assert demo_config() == NOTEBOOKS / "lora.train.yaml"


def test_an_installed_package_copies_the_demo_and_it_is_complete(
    installed: Path, home: Path
) -> None:
    config = demo_config(package=installed)
    assert config == home / "demo" / "lora.train.yaml"
    assert check_files(load_training_config(config), config.parent) == []
    scores = score_config(config)
    assert scores == config.parent / "menu.score.yaml"
    read = from_path(kind_named("score"), scores)
    assert score_files.check_files(read, config.parent) == []
    config.write_text(config.read_text() + "# changed\n")
    (config.parent / "menu_hooks.py").unlink()
    assert demo_config(package=installed).read_text().endswith("# changed\n")
    assert (config.parent / "menu_hooks.py").exists()


def test_the_menu_data_of_examples_comes_with_the_package(installed: Path) -> None:
    assert menu_data() == NOTEBOOKS / "data"
    assert menu_data(package=installed) == installed / "demo_workspace" / "data"
    (installed / "demo_workspace" / "data" / "menu-train.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"menu-train\.jsonl does not exist"):
        menu_data(package=installed)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lora\.train\.yaml does not exist"):
        demo_config(tmp_path)


def test_a_workspace_may_have_no_score_config(tmp_path: Path) -> None:
    assert score_config(tmp_path / "lora.train.yaml") is None


@pytest.mark.ray
@pytest.mark.slow
def test_it_ends_with_base_and_adapter_in_one_table(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(score_env.ENV_VAR, raising=False)  # Transformers answers.
    workspace = home / "demo"
    for name in FILES:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(NOTEBOOKS / name, workspace / name)
    _change(
        workspace / "lora.train.yaml",
        {
            "SmolLM2-135M-Instruct": "tiny-llama",
            "max_length: 96": "max_length: 512",
            "max_eval_rows: 48": "max_eval_rows: 2",
        },
    )
    _change(workspace / "menu.score.yaml", {"  key: id ": "  limit: 12\n  key: id "})
    try:
        code = run_demo(workspace, max_steps=2)
        shown = capsys.readouterr().out
        assert code == 0, shown
        base, tuned = llmops.runs()[1], llmops.runs()[0]
        assert base.record.kind == tuned.record.kind == "score"
        assert (base.config.model.adapter, bool(tuned.config.model.adapter)) == ("", True)
        compared = shown.partition("the base model against the adapter")[2]
        assert compared.index(base.id) < compared.index(tuned.id)
        for word in ("field_accuracy", "95 % interval", "delta"):
            assert word in compared
    finally:
        llmops.down("local")


def _change(file: Path, texts: dict[str, str]) -> None:
    content = file.read_text()
    for old, new in texts.items():
        assert old in content
        content = content.replace(old, new)
    file.write_text(content)
