"""A third kind of run, registered from outside: submitted from its own config file on a real Ray.

The server's routes are in `tests/server/kinds/test_third_kind.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.errors import ConfigError
from llmops_kernel.providers.protocol import ClusterInfo
from tests.cli.conftest import call
from tests.kinds.toy import IndexConfig, registered, write_workspace

pytestmark = pytest.mark.ray


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    with registered():
        yield


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_workspace(tmp_path / "work")


def index_of(run: llmops.Run) -> dict[str, int]:
    assert isinstance(run.output, Path)
    found: dict[str, int] = json.loads((run.output / "index.json").read_text())
    return found


def test_it_is_submitted_from_the_command_line(
    ray_cluster: ClusterInfo, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("check", str(config), "pause_s=-1") == 1
    assert "pause_s: must be a number of at least 0" in capsys.readouterr().err
    words = ("submit", str(config), "pause_s=0.05", "--cluster", ray_cluster.name, "--follow")
    assert call(*words) == 0
    assert "documents/s" in capsys.readouterr().out
    run = llmops.attach("last")
    assert (run.record.kind, run.record.name) == ("index", "small")
    assert run.record.config_path == "small.index.yaml"
    assert run.config == IndexConfig(name="small", folder="docs", pause_s=0.05)
    assert index_of(run) == {"1.txt": 1, "2.txt": 2, "3.txt": 3}


def test_it_is_submitted_from_python_in_each_form(ray_cluster: ClusterInfo, config: Path) -> None:
    cluster = llmops.cluster(ray_cluster.name)
    first = cluster.submit(config, suffix=".md")
    assert first.wait(120) == "SUCCEEDED", first.logs()
    assert index_of(first) == {}
    again = first.resubmit(suffix=".txt")
    assert again.wait(120) == "SUCCEEDED", again.logs()
    assert again.record.parent == first.id
    assert [change[0] for change in again.diff(first).config] == ["suffix"]
    third = cluster.submit(IndexConfig(folder="docs"), workspace=config.parent)
    assert third.wait(120) == "SUCCEEDED", third.logs()
    assert third.id.startswith("index-")
    assert index_of(third) == index_of(again) == {"1.txt": 1, "2.txt": 2, "3.txt": 3}
    names = {span.name for span in third.view.phases()}
    assert {"snapshot", "upload", "pending", "driver", "open_index"} <= names


def test_nothing_starts_while_its_config_is_wrong(ray_cluster: ClusterInfo, config: Path) -> None:
    before = [run.id for run in llmops.runs()]
    config.write_text("folder: dogs\npause: 1\n")
    with pytest.raises(ConfigError) as raised:
        llmops.cluster(ray_cluster.name).submit(config)
    assert "pause: unknown key" in str(raised.value)
    assert "folder: no such folder (value dogs)" in str(raised.value)
    assert [run.id for run in llmops.runs()] == before
