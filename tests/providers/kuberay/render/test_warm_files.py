"""Warm workers from nothing but a ConfigMap, in an interpreter that has no package of ours."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.providers.kuberay.render import warm_files
from llmops_kernel.warm.files import WarmFolder
from tests.waiting import until

ROOT = Path(__file__).parents[4]
ENTRIES = ("start_hook", "keeper", "server", "launcher")
RAY_START = """\
import json, os, sys
from types import SimpleNamespace
import llmops_warm_hook
params = SimpleNamespace(setup_worker_path="ray's own", ray_client_server_port=10001)
llmops_warm_hook.configure(params, True)
told = {name: os.environ.get(name) for name in ("PATH", "PYTHONPATH", "RAY_START_HOOK")}
print(json.dumps({**told, "worker": params.setup_worker_path, "sys.path": sys.path}), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image's interpreter: nothing is installed."""
    folder = tmp_path_factory.mktemp("image")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """The ConfigMap as the kubelet mounts it: flat, for reading only."""
    data = warm_files.config_map("lab", namespace="ml", labels={})["data"]
    folder = tmp_path / "opt"
    folder.mkdir()
    for key, text in data.items():
        (folder / key).write_text(text)
    folder.chmod(0o555)
    return folder


@contextmanager
def ray_start(python: Path, mounted: Path, node: Path) -> Iterator[dict[str, Any]]:
    """What `ray start --block` sees after its hook; it lives as long as this."""
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(node.parent),
        "PYTHONPATH": f"{mounted}:/elsewhere",
        "RAY_START_HOOK": "llmops_warm_hook.configure",
        "LLMOPS_WARM_DIR": str(node),
        "LLMOPS_WARM_PRELOAD": "decimal",
    }
    line = [str(python), "-c", RAY_START, "--block"]
    pipes: dict[str, Any] = {"stdin": -1, "stdout": -1, "stderr": -1, "text": True}
    process = subprocess.Popen(line, env=env, **pipes)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        first = process.stdout.readline()
        assert first, process.stderr.read()
        yield json.loads(first) | {"env": env, "process": process}
    finally:
        process.kill()
        process.communicate()


def test_the_files_are_those_that_are_imported_and_no_others():
    found: set[str] = set()
    waiting = [f"llmops_kernel/warm/{name}.py" for name in ENTRIES]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(ROOT / path)
    names = ("__init__", "version", "warm/__init__", "hardware/__init__")
    packages = {f"llmops_kernel/{name}.py" for name in names}
    assert set(warm_files.files()) == found | packages


def _imported(path: Path) -> list[str]:
    modules: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("llmops_kernel"):
            module = str(node.module)
            modules += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    files = [f"{module.replace('.', '/')}.py" for module in modules]
    return [file for file in files if (ROOT / file).is_file()]


def test_they_need_the_standard_library_alone():
    for path, text in warm_files.files().items():
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.partition(".")[0]
                lazily = path == "llmops_kernel/__init__.py"
                assert top in sys.stdlib_module_names or top == "llmops_kernel" or lazily, path


def test_they_fit_into_a_config_map():
    body = warm_files.config_map("lab", namespace="ml", labels={})
    assert len(json.dumps(body)) < 512 * 1024
    assert all(
        key.replace("-", "").replace("_", "").replace(".", "").isalnum() for key in body["data"]
    )


def test_a_stock_image_starts_processes_warm(python: Path, mounted: Path, tmp_path: Path):
    folder = WarmFolder(tmp_path / "run" / "node")
    with ray_start(python, mounted, folder.root) as seen:
        code = folder.root.with_name("code")
        assert seen["worker"] == str(code / "llmops_kernel" / "warm" / "launcher.py")
        assert seen["PATH"] == f"{folder.bin}:/usr/bin:/bin"
        assert seen["RAY_START_HOOK"] is None
        # Nothing of a part of us is on the path of jobs, which bring the whole.
        assert seen["PYTHONPATH"] == f"{mounted}:/elsewhere"
        assert str(code) not in seen["sys.path"]
        report = until(folder.read_report)
        assert report.get("problem", "") == ""
        assert "decimal" in report["modules"]
        reported = job(seen, folder, "import os, sys; print(os.environ['LLMOPS_WARM'], sys.path)")
        assert reported.startswith("warm ")
        assert str(code) not in reported
        assert (
            job(seen, folder, "import importlib.util as u; print(u.find_spec('llmops_kernel'))")
            == "None"
        )
        keeper = (folder.read_state() or {})["keeper_pid"]
        seen["process"].kill()
        seen["process"].wait()
        until(lambda: not Path(f"/proc/{keeper}").exists())


def job(seen: dict[str, Any], folder: WarmFolder, program: str) -> str:
    """An entrypoint: `python -c ...` with the node's environment."""
    env = seen["env"] | {"PATH": seen["PATH"], "PYTHONPATH": seen["PYTHONPATH"]}
    env.pop("RAY_START_HOOK")
    done = subprocess.run(
        ["python", "-c", program],
        executable=str(folder.bin / "python"),
        env=env,
        cwd=folder.root.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_what_fails_there_starts_the_node_cold(python: Path, mounted: Path, tmp_path: Path):
    in_the_way = tmp_path / "run"
    in_the_way.write_text("a file where the folder should be")
    with ray_start(python, mounted, in_the_way / "node") as seen:
        assert seen["worker"] == "ray's own"
        assert seen["PATH"] == "/usr/bin:/bin"
        assert seen["PYTHONPATH"] == f"{mounted}:/elsewhere"
        assert seen["RAY_START_HOOK"] is None
        process = seen["process"]
        process.kill()
        assert "no warm workers on this node" in process.communicate()[1]


def test_the_same_files_again_after_a_restart_of_the_container(
    python: Path, mounted: Path, tmp_path: Path
):
    """The emptyDir outlives the container, the old keeper does not."""
    folder = WarmFolder(tmp_path / "run" / "node")
    for _ in range(2):
        with ray_start(python, mounted, folder.root) as seen:
            state = until(
                lambda: (folder.read_state() or {}).get("state") == "ready" and folder.read_state()
            )
            reported = until(
                lambda: job(seen, folder, "import os; print(os.environ['LLMOPS_WARM'])") == "warm"
            )
            assert reported
            keeper = state["keeper_pid"]
            seen["process"].kill()
            seen["process"].wait()
            until(lambda pid=keeper: not os.path.exists(f"/proc/{pid}"))
