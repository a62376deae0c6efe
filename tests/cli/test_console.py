"""What commands print can be copied: nothing is folded in a file or a pipe."""

from __future__ import annotations

import pytest

from llmops_kernel.cli.console import facts, out, table

LONG = "/data/" + "a-folder-with-a-name/" * 20 + "weights.safetensors"


def test_a_pipe_gets_paths_whole_whatever_columns_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out().print(facts({"path": LONG}))
    out().print(table(["run", "path", "notes"], [["r-1", LONG, LONG]]))
    out(stderr=True).print(f"{LONG} ...")
    printed = capsys.readouterr()
    words = printed.out.split()
    assert words.count(LONG) == 3
    assert printed.err == f"{LONG} ...\n"
