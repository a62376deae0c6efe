"""Where `llmops demo` takes its config and data from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from llmops_kernel.config.reading.load import check_files, load_training_config
from llmops_kernel.errors import ConfigError
from llmops_kernel.services.demo import FILES, demo_config

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
    config.write_text(config.read_text() + "# changed\n")
    (config.parent / "menu_hooks.py").unlink()
    assert demo_config(package=installed).read_text().endswith("# changed\n")
    assert (config.parent / "menu_hooks.py").exists()


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lora\.train\.yaml does not exist"):
        demo_config(tmp_path)
