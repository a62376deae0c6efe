"""Which requests a fork can answer, and that Ray's own reading of them is met."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.warm.env_reads import EnvReads
from llmops_kernel.warm.plan import Base, Plan, RefusedError, expanded, plan, python_path

BASE = Base(
    executable=sys.executable,
    env={"PATH": "/bin", "HOME": "/h", "HF_HOME": "/cache"},
    path=("/usr/lib/python",),
    loaded=frozenset({"numpy", "queue", "transformers"}),
)


def worker(context: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    arguments = ["/ray/default_worker.py", "--node-ip-address=1", "--language=PYTHON"]
    if context is not None:
        arguments.append(f"--serialized-runtime-env-context={json.dumps(context)}")
    return request(kind="worker", argv=arguments, **changes)


def driver(*arguments: str, **changes: Any) -> dict[str, Any]:
    return request(kind="driver", argv=list(arguments), **changes)


def request(**changes: Any) -> dict[str, Any]:
    env = BASE.env | changes.pop("env", {})
    return {"executable": sys.executable, "cwd": "/", "env": env} | changes


def reason(asked: dict[str, Any], base: Base = BASE) -> str:
    with pytest.raises(RefusedError) as caught:
        plan(asked, base)
    return str(caught.value)


def test_a_worker_gets_the_arguments_that_are_not_for_its_setup(tmp_path: Path) -> None:
    context = {
        "command_prefix": ["cd", str(tmp_path), "&&"],
        "env_vars": {"ADDED": "1", "PATH": "/new:${PATH}"},
        "py_executable": sys.executable,
        "override_worker_entrypoint": None,
        "java_jars": [],
    }
    made = plan(worker(context), BASE)
    assert made == Plan(
        kind="worker",
        mode="script",
        target="/ray/default_worker.py",
        arguments=("--node-ip-address=1",),
        env=BASE.env | {"ADDED": "1", "PATH": "/new:/bin"},
        cwd=str(tmp_path),
        first_path="/ray",
        unbuffered=False,
        line=("/ray/default_worker.py", "--node-ip-address=1"),
    )


def test_a_folder_with_a_blank_in_its_name_is_quoted_as_for_a_shell(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    made = plan(worker({"command_prefix": ["cd", f"'{folder}'", "&&"]}), BASE)
    assert made.cwd == str(folder)


@pytest.mark.parametrize(
    ("context", "reported"),
    [
        ({"java_jars": ["x.jar"]}, "a container or a worker entrypoint"),
        ({"override_worker_entrypoint": "/x.py"}, "a container or a worker entrypoint"),
        ({"command_prefix": ["conda", "activate", "x", "&&"]}, "prefix (conda activate x &&)"),
        ({"command_prefix": ["source", "/v/bin/activate", "1>&2", "&&"]}, "command prefix (source"),
        ({"command_prefix": ["cd", "/", "&&", "nice"]}, "command prefix (nice)"),
        ({"command_prefix": ["podman", "run"]}, "command prefix (podman run)"),
        ({"py_executable": "/v/bin/python"}, "other interpreter: /v/bin/python"),
        ({"py_executable": f"{sys.executable} -u"}, "other interpreter"),
        ({"env_vars": {"LLMOPS_WARM_REFUSE": "so it is"}}, "so it is"),
        ({"env_vars": {"LD_PRELOAD": "x.so"}}, "read when libraries load: LD_PRELOAD"),
        ({"command_prefix": ["cd", "/not/there", "&&"]}, "no such working directory"),
    ],
)
def test_what_a_worker_cannot_be_forked_for(context: dict[str, Any], reported: str) -> None:
    assert reported in reason(worker(context))


def test_a_worker_in_java() -> None:
    asked = worker()
    asked["argv"][-1] = "--language=JAVA"
    assert reason(asked) == "a worker in java"


@pytest.mark.parametrize(
    "name", ["LD_LIBRARY_PATH", "PYTHONHASHSEED", "MKL_NUM_THREADS", "LANG", "HF_HOME", "HOME"]
)
def test_a_variable_that_is_read_at_the_start(name: str) -> None:
    assert name in reason(worker({"env_vars": {name: "other"}}))
    assert name in reason(driver("-c", "pass", env={name: "other"}))


def test_a_variable_of_the_server_that_the_job_lacks() -> None:
    asked = driver("-c", "pass")
    del asked["env"]["HF_HOME"]
    assert "HF_HOME" in reason(asked)


@pytest.mark.parametrize("name", ["FSSPEC_S3_KEY", "HF_TOKEN_PATH", "TQDM_DISABLE", "READ_BY_ONE"])
def test_a_variable_that_a_library_has_read(name: str) -> None:
    reads = EnvReads(names=frozenset({"READ_BY_ONE"}), prefixes=("TQDM_",))
    base = Base(executable=sys.executable, env=BASE.env, path=(), reads=reads)
    assert name in reason(driver("-c", "pass", env={name: "1"}), base)
    plan(driver("-c", "pass", env={"READ_BY_NOBODY": "1", "HF_TOKEN": "t", "PATH": "/x"}), base)


def test_after_a_library_looked_at_all_variables_only_named_ones_may_differ() -> None:
    base = Base(
        executable=sys.executable,
        env=BASE.env,
        path=(),
        reads=EnvReads(strangers=("some.library",)),
    )
    assert "MY_OWN" in reason(driver("-c", "pass", env={"MY_OWN": "1"}), base)
    plan(driver("-c", "pass", env={"HF_TOKEN": "t", "LLMOPS_CACHE": "/c"}), base)


@pytest.mark.parametrize(
    "name",
    ["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "HF_TOKEN", "WANDB_MODE", "TZ"],
)
def test_a_variable_that_a_fork_can_still_take_over(name: str) -> None:
    assert plan(worker({"env_vars": {name: "1"}}), BASE).env[name] == "1"


@pytest.mark.parametrize(
    ("arguments", "mode", "target", "rest", "unbuffered"),
    [
        (["job.py"], "script", "job.py", (), False),
        (["-u", "job.py", "-u", "-m"], "script", "job.py", ("-u", "-m"), True),
        (["-m", "pack.mod", "--x"], "module", "pack.mod", ("--x",), False),
        (["-u", "-u", "-c", "pass", "1"], "command", "pass", ("1",), True),
    ],
)
def test_a_driver(
    tmp_path: Path,
    arguments: list[str],
    mode: str,
    target: str,
    rest: tuple[str, ...],
    unbuffered: bool,
) -> None:
    (tmp_path / "job.py").touch()
    made = plan(driver(*arguments, cwd=str(tmp_path)), BASE)
    assert (made.mode, made.target, made.arguments) == (mode, target, rest)
    assert made.unbuffered is unbuffered
    assert made.first_path == ("" if mode == "command" else str(tmp_path))


@pytest.mark.parametrize("arguments", [[], ["-"], ["-u"]])
def test_a_driver_from_standard_input(arguments: list[str]) -> None:
    assert reason(driver(*arguments)) == "python reads its program from standard input"


@pytest.mark.parametrize("flag", ["-V", "-i", "-O", "-Werror", "-X", "-um", "-I", "-m"])
def test_a_driver_with_another_flag(flag: str) -> None:
    assert reason(driver(flag)) == f"python {flag}"


def test_a_driver_that_is_no_text(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "app", "w") as archive:
        archive.writestr("__main__.py", "")
    (tmp_path / "old.pyc").touch()
    (tmp_path / "folder").mkdir()
    reported = {name: reason(driver(name, cwd=str(tmp_path))) for name in os.listdir(tmp_path)}
    assert reported == {
        "app": "python app: an archive",
        "old.pyc": "python old.pyc: compiled already",
        "folder": "python folder: not a file",
    }


def test_another_interpreter() -> None:
    assert reason(driver("-c", "", executable="/x/python")) == "other interpreter: /x/python"


def test_changed_packages(tmp_path: Path) -> None:
    stack = {str(tmp_path): tmp_path.stat().st_mtime_ns}
    base = Base(executable=sys.executable, env=BASE.env, path=(), stack=stack)
    plan(driver("-c", ""), base)
    (tmp_path / "new").touch()
    os.utime(tmp_path, ns=(1, 1))
    assert "installed packages changed" in reason(driver("-c", ""), base)


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("transformers/__init__.py", "the job brings its own transformers"),
        ("queue.py", "the job brings its own queue.py"),
        ("numpy.cpython-311-x86_64-linux-gnu.so", "the job brings its own numpy."),
        ("sitecustomize.py", "runs when an interpreter starts"),
        ("usercustomize.py", "runs when an interpreter starts"),
        ("transformers/data.txt", ""),
        ("numpy.txt", ""),
        ("own.py", ""),
    ],
)
@pytest.mark.parametrize("through", ["script", "module", "path", "empty path", "worker"])
def test_a_module_that_would_come_first(
    tmp_path: Path, name: str, reported: str, through: str
) -> None:
    folder = tmp_path / "code"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).touch()
    (folder / "job.py").touch()
    asked = {
        "script": driver("code/job.py", cwd=str(tmp_path)),
        "module": driver("-m", "job", cwd=str(folder)),
        "path": driver("-c", "", cwd=str(tmp_path), env={"PYTHONPATH": "/x:code"}),
        "empty path": driver("-c", "", cwd=str(folder), env={"PYTHONPATH": "/x:"}),
        "worker": worker({"env_vars": {"PYTHONPATH": f"{folder}:${{PYTHONPATH}}"}}),
    }[through]
    if reported:
        assert reported in reason(asked)
    else:
        plan(asked, BASE)


def test_a_folder_that_the_server_had_on_its_path_too(tmp_path: Path) -> None:
    (tmp_path / "queue.py").touch()
    env = BASE.env | {"PYTHONPATH": str(tmp_path)}
    base = Base(executable=sys.executable, env=env, path=(), loaded=BASE.loaded)
    plan(driver("-c", "", env=env), base)


def test_python_path() -> None:
    assert python_path({}, "/w") == []
    assert python_path({"PYTHONPATH": ""}, "/w") == []
    assert python_path({"PYTHONPATH": "a:/b:"}, "/w") == ["/w/a", "/b", "/w/"]


NAMES = st.sampled_from(["A", "B", "LONG_1", "lower", "{A", "Ä"])
PARTS = st.one_of(
    st.sampled_from(["$", "${", "}", "{", "$$", " ", "x", "${}", "\\"]),
    NAMES.map("${{{}}}".format),
    NAMES.map("${}".format),
    st.text(alphabet="${}ABab_1 :", max_size=6),
)
VALUES = st.lists(PARTS, max_size=6).map("".join)
VARIABLES = st.dictionaries(st.sampled_from(["A", "B", "LONG_1", "lower"]), VALUES, max_size=4)


@settings(deadline=None)  # The first example imports Ray.
@given(env=VARIABLES, added=VARIABLES)
def test_variables_are_expanded_as_ray_does(env: dict[str, str], added: dict[str, str]) -> None:
    from ray._private.utils import update_envs

    kept = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(env)
        update_envs(added)
        rays = dict(os.environ)
    finally:
        os.environ.clear()
        os.environ.update(kept)
    assert expanded(env, added) == rays
