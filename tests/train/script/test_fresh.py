"""A script on a warm process sees what a new interpreter would show it, or gets a new one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.train.script.fresh import reached, variables_set, why_cold
from llmops_kernel.warm.env_reads import EnvReads
from tests.driver.test_packages import wheel
from tests.messages import missing
from tests.train.script.conftest import ScriptRun
from tests.warm.conftest import Node

READS = EnvReads(names=frozenset({"READ_EARLY"}), prefixes=("TQDM_",))
LIBRARY = """
import os
HOME = os.environ.get("NEW_HOME", "default")
OFFLINE = os.environ.get("NEW_OFFLINE", "0")
"""


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import os\nos.environ['A'] = '1'", ["A"]),
        ("from os import environ\nenviron['A'] = value()", ["A"]),
        ("import os\nos.environ.setdefault('A', '1')", ["A"]),
        ("import os\nos.environ.update(A='1', **{'B': '2'})", ["A"]),
        ("import os\nos.environ.update({'A': '1', 'B': '2'})", ["A", "B"]),
        ("import os\nos.environ |= {'A': '1'}", ["A"]),
        ("import os\nos.putenv('A', '1')", ["A"]),
        ("import os\ndel os.environ['A']", ["A"]),
        ("import os\nos.environ['A'], other = '1', 2", ["A"]),
        ("import os\nos.environ.pop('A', None)", ["A"]),
        ("import os\ndef setup():\n    os.environ['A'] = '1'", ["A"]),
        ("import os\nfor k, v in {'AB': '1'}.items():\n    os.environ[k] = v", ["AB"]),
        # Reading is no change, and the value that a variable has already is none either.
        ("import os\nprint(os.environ['A'], os.environ.get('B'))", []),
        ("import os\nos.environ['SET_ALREADY'] = 'yes'", []),
        ("import os\nos.environ.setdefault('SET_ALREADY', 'no')", []),
        ("import os\nos.environ['A'] = ", []),
    ],
)
def test_which_variables_a_program_sets(
    source: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SET_ALREADY", "yes")
    assert variables_set(source) == names


def _why(workspace: Path, **config: Any) -> str:
    wanted = ScriptConfig(script=config.pop("script", "train.py"), **config)
    return why_cold(wanted, workspace, reads=lambda: READS)


def _write(workspace: Path, **files: str) -> None:
    for name, text in files.items():
        path = workspace / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_only_what_libraries_have_read_starts_a_new_interpreter(tmp_path: Path) -> None:
    _write(tmp_path, train="import os\nos.environ['OWN'] = '1'\nos.environ['PYTHONHASHSEED'] = '0'")
    assert _why(tmp_path) == ""
    _write(tmp_path, train="import os\nos.environ['READ_EARLY'] = '1'")
    assert missing(_why(tmp_path), "train.py", "READ_EARLY") == []
    _write(tmp_path, train="import os\nos.environ['OMP_NUM_THREADS'] = '77'")
    assert _why(tmp_path).endswith("OMP_NUM_THREADS")


def test_modules_that_the_script_imports_count(tmp_path: Path) -> None:
    sets = "import os\nos.environ['TQDM_DISABLE'] = '1'"
    _write(tmp_path, train="from lib.settings import apply", lib__settings="from . import deep")
    _write(tmp_path, lib__deep=sets, other=sets)
    assert missing(_why(tmp_path), "lib/deep.py", "TQDM_DISABLE") == []
    names = [str(file.relative_to(tmp_path)) for file in reached(tmp_path / "train.py", tmp_path)]
    assert names == ["train.py", "lib/settings.py", "lib/deep.py"]


@pytest.mark.parametrize(
    "source",
    [
        "from os import path\nimport own",  # The lines behind it were taken for names of it.
        "from os import path\n\nfrom own import value",
        "from own import *",
        "from os import (\n    path,  # a, comment\n    sep,\n)\nimport own",
        "from own import (value)",
        "import os; import own",
        "if True:\n    import os, own as mine",
    ],
)
def test_every_import_is_followed(tmp_path: Path, source: str) -> None:
    _write(tmp_path, train=source, own="import os\nos.environ['READ_EARLY'] = '1'")
    assert _why(tmp_path).startswith("own.py sets")


def test_variables_of_the_config(tmp_path: Path) -> None:
    _write(tmp_path, train="")
    assert _why(tmp_path, env={"OWN": "1"}) == ""
    assert "LD_PRELOAD" in _why(tmp_path, env={"LD_PRELOAD": "x.so"})
    assert "READ_EARLY" in _why(tmp_path, env={"READ_EARLY": "x"})


def test_a_loaded_module_that_the_script_brings_itself(tmp_path: Path) -> None:
    _write(tmp_path, parts__train="import pytest", parts__pytest="")
    assert "its own pytest.py" in _why(tmp_path, script="parts/train.py")
    _write(tmp_path, train="", more__pytest="")
    assert _why(tmp_path, env={"PYTHONPATH": "parts2"}) == ""
    assert "its own pytest.py" in _why(tmp_path, env={"PYTHONPATH": "more"})


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A fork server that has imported a library which reads variables when it is imported."""
    found = Node.create(tmp_path / "node")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "early.py").write_text(LIBRARY)
    root = str(Path(__file__).parents[3])
    found.start("early", "multiprocessing", "pydantic", path=f"{root}:{tmp_path / 'lib'}")
    yield found.ready()
    found.stop()


def _run(script_run: ScriptRun, node: Node, *, config_env: dict[str, str] | None = None) -> str:
    """Run it through the node's `python`; return how its driver came to life."""
    env = {**node.env(), "PYTHONPATH": str(Path(__file__).parents[3])}
    env["PYTHONPATH"] += f":{node.folder.root.parents[1] / 'lib'}"
    python = [str(node.folder.bin / "python")]
    process = script_run.start(python=python, node_env=env, env=config_env or {})
    assert script_run.finish(process) == 0, script_run.output
    [driver] = script_run.events("process")
    return "warm" if driver.warm else str(driver.reason)


def test_a_variable_set_in_the_first_lines_has_its_effect(
    script_run: ScriptRun, node: Node
) -> None:
    script_run.write("import os\nos.environ['NEW_HOME'] = 'mine'\nimport early; print(early.HOME)")
    started = _run(script_run, node)
    assert "mine" in script_run.output
    assert missing(started, "train.py", "NEW_HOME") == []


def test_a_variable_of_the_config_has_its_effect(script_run: ScriptRun, node: Node) -> None:
    script_run.write("import early, os; print(early.HOME, os.environ['OWN'])")
    started = _run(script_run, node, config_env={"NEW_HOME": "ours", "OWN": "own"})
    assert "ours own" in script_run.output
    assert "NEW_HOME" in started
    assert _run(script_run, node, config_env={"OWN": "own"}) == "warm"
    assert "default own" in script_run.output


def test_folders_of_pythonpath_are_searched(
    script_run: ScriptRun, node: Node, tmp_path: Path
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "mine.py").write_text("WHO = 'found'")
    script_run.write(
        "import sys, subprocess, mine; print(mine.WHO, flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'import mine; print(\"child\", mine.WHO)'])\n"
    )
    started = _run(script_run, node, config_env={"PYTHONPATH": str(tmp_path / "more")})
    assert (started, "child found" in script_run.output) == ("warm", True), script_run.output
    # A module that the fork server has loaded comes from the user's folder, as they asked.
    (tmp_path / "more" / "early.py").write_text("HOME = 'own copy'")
    script_run.write("import early; print(early.HOME)")
    started = _run(script_run, node, config_env={"PYTHONPATH": str(tmp_path / "more")})
    assert ("its own early.py" in started, "own copy" in script_run.output) == (True, True)


def test_a_plain_script_stays_warm(script_run: ScriptRun, node: Node) -> None:
    script_run.write("import os, early; os.environ['MASTER_ADDR'] = 'x'; print(early.HOME)")
    assert _run(script_run, node) == "warm"
    assert "default" in script_run.output
    assert os.environ.get("MASTER_ADDR") != "x"


def test_a_script_computes_with_all_cores_as_python_does(
    script_run: ScriptRun, tmp_path: Path
) -> None:
    """Ray gives the actor that starts a job's driver one thread, which the driver inherits."""
    script_run.write(
        "import os, numpy, torch; print('threads', torch.get_num_threads(),"
        " os.environ.get('OMP_NUM_THREADS'))"
    )
    node = Node.create(tmp_path / "threads")
    root = str(Path(__file__).parents[3])
    node.start("torch", "pydantic", path=root)
    node.ready(timeout_s=120)
    env = {**node.env(), "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    found = {}
    for name, python in (("warm", str(node.folder.bin / "python")), ("cold", sys.executable)):
        for config_env in ({}, {"OMP_NUM_THREADS": "1"}):
            process = script_run.start(python=[python], node_env=env, env=config_env)
            assert script_run.finish(process) == 0, script_run.output
            found[name, *config_env] = script_run.output.split("threads ")[1].split("\n")[0]
    node.stop()
    plain = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    code = "import torch; print(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=plain)
    expected = {"": f"{done.stdout.strip()} None", "OMP_NUM_THREADS": "1 1"}
    assert found == {
        (name, *filter(None, [key])): value
        for name in ("warm", "cold")
        for key, value in expected.items()
    }


def test_another_version_of_a_loaded_package_is_what_the_script_sees(
    script_run: ScriptRun, tmp_path: Path
) -> None:
    wheel(script_run.workspace / "wheels", "packaging", "1.2.3", code="OLD = 'yes'\n")
    wheel(script_run.workspace / "wheels", "llmops-extra", "1.0")
    script_run.write("--no-index\n--find-links ./wheels\n", "more.txt")
    node = Node.create(tmp_path / "loaded")
    root = str(Path(__file__).parents[3])
    node.start("packaging.version", "multiprocessing", "pydantic", path=root)
    node.ready()
    env = {**node.env(TMPDIR=str(tmp_path)), "PYTHONPATH": root}
    starts = {}
    for package, program in (
        ("llmops-extra==1.0", "import llmops_extra, packaging.version; print('HAS')"),
        ("packaging==1.2.3", "import packaging; print('OLD', packaging.OLD)"),
    ):
        script_run.write(program)
        process = script_run.start(
            python=[str(node.folder.bin / "python")],
            node_env=env,
            packages=[package],
            requirements="more.txt",
        )
        assert script_run.finish(process) == 0, script_run.output
        [driver] = script_run.events("process")
        starts[package] = "warm" if driver.warm else driver.reason
    node.stop()
    assert "OLD yes" in script_run.output
    assert starts["llmops-extra==1.0"] == "warm"
    assert starts["packaging==1.2.3"].startswith(
        "the run's packages replace what is loaded (packaging "
    )
