"""Tables in terminals of several widths, and in files."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from llmops_kernel.cli.clusters.details import cluster_table
from llmops_kernel.cli.console import facts, out, state, table
from llmops_kernel.cli.fitting_table import FittingTable
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState

RUN = "menu-tags-long-name-261122-054512-ab12"
RUNS = table(
    ["run", "state", "step", "loss", "MFU", "tokens/s", "cluster", "age", "attempt"],
    [
        [
            RUN,
            "RUNNING",
            "1,000 of 10,000",
            "0.1234",
            "41.2 %",
            "123.4 k",
            "gcp-h100",
            "3 min",
            "1",
        ],
        ["toy-1", state("SUCCEEDED"), "2 of 2", "2.0000", "–", "100.0", "local", "2 days", "12"],
    ],
    right=("step", "loss", "MFU", "tokens/s", "age", "attempt"),
    optional=("attempt", "cluster", "tokens/s", "MFU"),
)


def shown(made: FittingTable, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(made)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 120, 1000])
def test_no_number_and_no_word_of_a_list_is_cut(width: int) -> None:
    text = "\n".join(lines := shown(RUNS, width))
    assert max(map(len, lines)) <= width
    for cell in ("1,000 of 10,000", "0.1234", "SUCCEEDED", "2 of 2", "2 days"):
        assert cell in text, text
    # A name may be folded, but no letter of it is lost.
    names = "".join(line.split("  ")[0].strip() for line in lines)
    assert RUN in names
    assert "…" not in text


def test_optional_columns_go_first_and_only_when_they_must() -> None:
    heads = {width: re.split(r"  +", shown(RUNS, width)[1].strip()) for width in (80, 120, 1000)}
    assert heads[1000] == list(RUNS.columns)
    assert {"run", "state", "step", "loss", "age"} <= set(heads[80])
    assert len(heads[80]) < len(heads[120])


def test_a_file_gets_every_column_and_no_colours() -> None:
    text = "\n".join(shown(RUNS, 1000))
    assert RUN in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [80, 120])
def test_many_runs_beside_each_other_become_several_tables(width: int) -> None:
    runs = [f"menu-tags-261122-05451{number}-ab12" for number in range(6)]
    rows = [
        ["loss", *(f"{number}.1234" for number in range(6))],
        ["optimizer.learning_rate", *(f"{number}e-05" for number in range(6))],
    ]
    lines = shown(table(["", *runs], rows, split=True), width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for word in (*runs, *(cell for row in rows for cell in row)):
        assert word in text, text
    assert text.count("optimizer.learning_rate") > 1


@pytest.mark.parametrize("width", [80, 120])
def test_clusters_on_kubernetes_fit(width: int) -> None:
    infos = [
        ClusterInfo(
            name="gcp-h100",
            provider="kuberay",
            state=ClusterState.STARTING,
            context="gke_company_us-central1_training-cluster",
            namespace="ml-training",
            workers_ready=3,
            workers_wanted=4,
        ),
        ClusterInfo(
            name="local",
            provider="local",
            state=ClusterState.READY,
            num_nodes=1,
            num_cpus=2,
            cpus_used=0.5,
            warm="warm",
            dashboard_url="http://127.0.0.1:8265",
        ),
    ]
    lines = shown(cluster_table(infos), width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for cell in ("gcp-h100", "STARTING", "READY", "3 of 4", "local"):
        assert cell in text, text


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


def test_ids_are_whole_at_80_columns_and_others_give_way() -> None:
    ids = [f"menu-tags-with-a-long-name-261126-1000{n:02}-ab{n:02}" for n in range(3)]
    rows = [[one, "lr 1e-4 · 10:05", "SUCCEEDED", "3 of 3", "1.3333", "4 min"] for one in ids]
    names = ["run", "name", "state", "progress", "loss", "age"]
    made = table(names, rows, optional=("progress", "age", "name"), whole=("run",))
    lines = shown(made, 80)
    assert max(map(len, lines)) <= 80
    for one in ids:
        assert any(line.strip().startswith(f"{one} ") for line in lines)
    heads = re.split(r"  +", lines[1].strip())
    assert heads == ["run", "state", "loss"]
    assert re.split(r"  +", shown(made, 160)[1].strip()) == names
