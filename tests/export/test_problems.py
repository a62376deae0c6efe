"""What prevents an export is said before anything is done, all of it at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmops_kernel.errors import ExportError, ModelError
from tests.export.conftest import Store


def refused(store: Store, run: str, path: Path | str | None, **options: object) -> ExportError:
    with pytest.raises(ExportError) as caught:
        store.export(run, path, **options)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    ("state", "says", "remedy"),
    [
        ("RUNNING", "has no result yet", "llmops wait r"),
        ("FAILED", "is FAILED and has no result", "llmops retry r"),
    ],
)
def test_a_run_without_a_result(
    store: Store, tmp_path: Path, state: str, says: str, remedy: str
) -> None:
    error = refused(store, store.add("r", None, state=state), tmp_path / "out")
    assert says in error.message
    assert remedy in error.remedy


def test_a_script_whose_checkpoint_is_no_model(store: Store, tmp_path: Path) -> None:
    (tmp_path / "step-6").mkdir()
    run = store.add("r", tmp_path / "step-6", what="checkpoint", kind="script")
    error = refused(store, run, tmp_path / "out")
    assert "no checkpoint that is a PEFT adapter" in error.message
    assert "track.checkpoint" in error.remedy


def test_a_kind_that_makes_no_model(store: Store, tmp_path: Path) -> None:
    error = refused(store, store.add("r", None, kind="score"), tmp_path / "out")
    assert "is of kind score, which makes no model" in error.message


def test_a_result_that_is_gone(store: Store, tmp_path: Path) -> None:
    error = refused(store, store.add("r", tmp_path / "deleted"), tmp_path / "out")
    assert f"is gone: {tmp_path / 'deleted'}" in error.message
    assert "llmops resubmit r" in error.remedy
    assert not (tmp_path / "out").exists()


def test_a_full_fine_tune_has_no_adapter(store: Store, full_model: Path, tmp_path: Path) -> None:
    run = store.add("r", full_model, what="model")
    error = refused(store, run, tmp_path / "out", to="vllm", lora=True)
    assert "has no adapter" in error.message


def test_a_base_model_that_is_not_here(store: Store, adapter: Path, tmp_path: Path) -> None:
    run = store.add("r", adapter, model="/models/llama-7b")
    error = refused(store, run, tmp_path / "out")
    assert "/models/llama-7b does not exist" in error.message
    assert "--base" in error.remedy


def test_all_that_is_wrong_is_said_at_once(store: Store, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    run = store.add("r", tmp_path / "deleted")
    error = refused(store, run, tmp_path / "out", dtype="int3", name="a b", repo="x/y", force=True)
    assert error.message.startswith("5 things prevent the export; nothing was done:")
    for part in ("int3", "'a b'", "--repo", "is gone", "was not written by llmops export"):
        assert part in error.message
    assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"to": "onnx"}, "--to onnx is unknown"),
        ({"to": "hub"}, "needs either a repository or a URL"),
        ({"to": "hub", "repo": "no-owner"}, "is not a repository"),
        ({"to": "gguf", "lora": True}, "merged weights only"),
    ],
)
def test_options_that_do_not_fit(
    store: Store,
    adapter: Path,
    options: dict[str, object],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert says in refused(store, store.add("r", adapter), None, **options).message


def test_a_url_is_for_the_hub(store: Store, adapter: Path) -> None:
    error = refused(store, store.add("r", adapter), "s3://bucket/model", to="vllm")
    assert "--to hub --path s3://bucket/model" in error.remedy


def test_an_earlier_export_is_replaced_with_force_only(
    store: Store, adapter: Path, full_model: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    store.export(store.add("first", adapter), target, check=0)
    second = store.add("second", full_model, what="model")
    error = refused(store, second, target)
    assert "--force" in error.remedy
    assert "`first`" in (target / "README.md").read_text()
    store.export(second, target, force=True, check=0)
    assert "`second`" in (target / "README.md").read_text()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["home", "out"]


def test_a_broken_adapter_leaves_nothing_behind(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "adapter_config.json").write_bytes((adapter / "adapter_config.json").read_bytes())
    weights = (adapter / "adapter_model.safetensors").read_bytes()
    (broken / "adapter_model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ModelError, match="cannot be loaded"):
        store.export(store.add("r", broken), tmp_path / "new" / "out")
    assert not (tmp_path / "new").exists()


def test_a_full_disk_is_named_and_nothing_is_left(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    """A file size limit of the process stands for the disk: writing fails half way."""
    run = store.add("r", adapter)
    code = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "from llmops_kernel.cli.main import main\n"
        f"main(['export', {run!r}, '--path', {str(tmp_path / 'out')!r}, '--check', '0'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Try:" in done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["home"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_an_interrupted_export_leaves_nothing_behind(
    store: Store, adapter: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run = store.add("r", adapter)
    line = ["export", run, "--path", str(tmp_path / "out"), "--check", "4"]
    process = subprocess.Popen(
        [sys.executable, "-m", "llmops_kernel.cli.main", *line],
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert process.stderr is not None
    assert "Loading" in process.stderr.readline()
    process.send_signal(number)
    process.wait(60)
    deadline_s = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) > 1 and time.monotonic() < deadline_s:
        time.sleep(0.1)
    process.stderr.close()
    assert [one.name for one in tmp_path.iterdir()] == ["home"]


def test_a_hub_model_that_cannot_be_had_is_named(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    run = store.add("r", adapter, model="someone/no-such-model")
    with pytest.raises(ModelError, match="someone/no-such-model") as caught:
        store.export(run, tmp_path / "out")
    assert "HF_TOKEN" in caught.value.remedy
    assert [one.name for one in tmp_path.iterdir()] == ["home"]
