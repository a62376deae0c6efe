"""Exports from and to real servers of three stores: the result of a run that is kept in one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import fs

from llmops_kernel.errors import ExportError
from llmops_kernel.models.catalogue import prepare
from tests.export.conftest import PROMPT, Store, greedy
from tests.tables.servers import start
from tests.tables.servers.running import server

__all__ = ["server"]


def test_a_result_in_a_store_is_served_from_a_folder_and_from_the_store(
    server: start.Store,
    store: Store,
    adapter: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    for file in adapter.iterdir():
        url = server.put(f"runs/first/output/{file.name}", file.read_bytes())
    result = url.rpartition("/")[0]
    run = store.add("first", result, output={"url": result})
    store.export(run, tmp_path / "served", check=0)
    expected = greedy(prepare("tiny-llama"), [PROMPT], adapter=adapter)
    assert greedy(tmp_path / "served", [PROMPT]) == expected

    target = f"{server.scheme}://bucket/served"
    done = store.export(run, target, to="hub", check=0)
    assert done.location == target
    stored = server.names("served")
    with server.files.open_input_stream("bucket/served/llmops-export.json") as stream:
        assert set(json.loads(stream.read())["files"]) < set(stored)
    fs.copy_files("bucket/served", str(tmp_path / "back"), source_filesystem=server.files)
    assert greedy(tmp_path / "back", [PROMPT]) == expected
    with pytest.raises(ExportError, match="exists"):
        store.export(run, target, to="hub", check=0)
    store.export(run, target, to="hub", force=True, check=0)
    assert server.names("served").keys() == stored.keys()


def test_a_result_that_is_not_in_the_store_any_more_is_named(
    server: start.Store, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    url = f"{server.scheme}://bucket/gone/output"
    with pytest.raises(ExportError, match="there is nothing at") as refused:
        store.export(store.add("first", url, output={"url": url}), tmp_path / "served", check=0)
    assert url in refused.value.message
