"""The same jobs, forked and from fresh interpreters: the same results, ends and logs."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

import llmops_kernel as llmops
from llmops_kernel.jobs.client import Job, JobsClient
from llmops_kernel.jobs.submit import Submission, submit_run
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.models.catalogue import prepare
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.store.store import RunStore
from llmops_kernel.train.model.tokenizer import KEPT
from llmops_kernel.warm.plan import REFUSE_ENV_VAR
from tests.configs import load_training_config
from tests.train.model.test_tokenizer_cache import add_tokens
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

MARK = "WARM_PARITY_MARK"
# Somebody else's: it has never heard of us.
JOB = """
import os, sys
import ray

ray.init(log_to_driver=False)

@ray.remote
def square(x):
    return x * x

@ray.remote
class Counter:
    def __init__(self):
        self.count = 0
    def add(self, by):
        self.count += by
        return self.count
    def told(self):
        return os.environ["LLMOPS_WARM"]

counter = Counter.remote()
print("squares", ray.get([square.remote(x) for x in range(5)]))
print("counts", ray.get([counter.add.remote(x) for x in (1, 2, 3)]), file=sys.stderr)
print("told:", os.environ["LLMOPS_WARM"], "|", ray.get(counter.told.remote()))
print("file", os.path.basename(__file__), sys.argv, __name__)
try:
    import own_module
    print("module", own_module.VALUE, ray.get(ray.remote(lambda: own_module.VALUE).remote()))
except ModuleNotFoundError as error:
    print(error)
print("no newline", end="")
sys.exit(int(sys.argv[1]))
"""
WAITING = "import os, time, ray; ray.init(); print('up', os.getpid(), flush=True); time.sleep(600)"
_WAITS = re.compile(r"waiting for resources|queue done")
_SET_UP = "job_manager|packaging|uri_cache|plugin|virtualenv_utils|utils|dependency_utils|pip"
COLD = {REFUSE_ENV_VAR: "asked for"}


class Jobs:
    """Submits scripts by the REST interface, with a runtime environment of their own."""

    def __init__(self, client: JobsClient, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._count = 0

    def package(self, files: Mapping[str, str]) -> str:
        """The address that Ray knows the files by."""
        path = self._folder / "package.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        self._client.upload_package(path, name=f"_ray_pkg_{digest}.zip")
        return f"gcs://_ray_pkg_{digest}.zip"

    def start(self, entrypoint: str, env: dict[str, Any], *, cold: bool) -> str:
        self._count += 1
        name = f"parity-{self._count}-{time.time_ns()}"
        variables = {MARK: name, **env.get("env_vars", {}), **(COLD if cold else {})}
        self._client.submit(
            entrypoint=entrypoint,
            submission_id=name,
            runtime_env={**env, "env_vars": variables},
            metadata={},
        )
        return name

    def get(self, name: str) -> Job:
        job = self._client.get(name)
        assert job is not None
        return job

    def log(self, name: str) -> str:
        return self._client.driver_log(self.get(name))

    def stop(self, name: str) -> None:
        self._client.stop(name)

    def ended(self, name: str) -> dict[str, Any]:
        """What anybody can see of it, without what differs between any two runs."""
        until(lambda: self.get(name).is_terminal, timeout_s=180)
        until(lambda: processes_of(name) == [], timeout_s=60)
        job = self.get(name)
        log = self.log(name)
        message = re.sub(r"submission_id|parity-\d+-\d+", "", job.message or "")
        return {
            "status": job.status,
            "code": job.driver_exit_code,
            "error": job.error_type,
            "message": start_reports_of(message)[1],
            "log": start_reports_of(log)[1],
            "start_report": start_reports_of(log)[0],
        }


def start_reports_of(text: str) -> tuple[list[str], list[str]]:
    """How the processes came to life; and the other lines, without times, pids and addresses."""
    # What the runtime environment's set-up says depends on what is in its cache.
    before, start, after = text.partition("Running entrypoint for job")
    text = start + after if start else before
    text = re.sub(rf"^\S+ \S+\tINFO ({_SET_UP})\.py:.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\S+ \S+\t(?=INFO|WARN)", "", text, flags=re.MULTILINE)
    lines = [re.sub(r"\d+[\d.:_-]{3,}\S*|\x1b\[\d*m", "#", line) for line in text.splitlines()]
    reported = [line.removeprefix("told: ") for line in lines if line.startswith("told: ")]
    return reported, [line for line in lines if not line.startswith("told: ")]


def processes_of(mark: str) -> list[psutil.Process]:
    """Those that have the mark in their environment or, as launchers, in their command line.

    A fork shows the fork server's environment, but its launcher stays as long as it does.
    """
    found = []
    for process in psutil.process_iter():
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and (
                process.environ().get(MARK) == mark or f'"{mark}"' in " ".join(process.cmdline())
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def jobs(cluster: llmops.Cluster, tmp_path: Path) -> Iterator[Jobs]:
    until(lambda: llmops.cluster(cluster.name).info.warm.startswith("warm"), timeout_s=180)
    with cluster.client() as client:
        yield Jobs(client, tmp_path)


def both(jobs: Jobs, entrypoint: str, env: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What both show, and how the processes of the first were told to have started."""
    warm, cold = (jobs.ended(jobs.start(entrypoint, env, cold=cold)) for cold in (False, True))
    assert cold.pop("start_report") == ["cold: asked for | cold: asked for"]
    reported = warm.pop("start_report")
    assert warm == cold
    return warm, reported


@pytest.mark.parametrize("code", [0, 3])
def test_somebody_elses_script(jobs: Jobs, code: int) -> None:
    env = {"working_dir": jobs.package({"job.py": JOB})}
    seen, reported = both(jobs, f"python job.py {code} 'a b'", env)
    assert reported == ["warm | warm"]
    assert seen["status"] == ("FAILED" if code else "SUCCEEDED")
    assert seen["code"] == code
    text = "\n".join(seen["log"])
    for line in ("squares [0, 1, 4, 9, 16]", "counts [1, 3, 6]", "No module named 'own_module'"):
        assert line in text


def test_a_job_with_modules_of_its_own(jobs: Jobs) -> None:
    env = {
        "working_dir": jobs.package({"job.py": JOB}),
        "py_modules": [jobs.package({"own_module/__init__.py": "VALUE = 41 + 1"})],
        "env_vars": {"SOME": "${HOME}/x"},
    }
    seen, reported = both(jobs, "python job.py 0", env)
    assert reported == ["warm | warm"]
    assert "module 42 42" in seen["log"]


def test_a_job_with_packages_of_its_own(jobs: Jobs, tmp_path: Path) -> None:
    """Its interpreter is another one, in which the packages are; so it starts cold, and says so."""
    wheel = tmp_path / "own_module-1.0-py3-none-any.whl"
    info = "own_module-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("own_module.py", "VALUE = 42")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: own-module\nVersion: 1.0"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    env = {"working_dir": jobs.package({"job.py": JOB}), "pip": {"packages": [str(wheel)]}}
    name = jobs.start("python job.py 0", env, cold=False)
    warm = jobs.ended(name)
    assert warm["status"] == "SUCCEEDED", (warm, jobs.get(name).message)
    assert "module 42 42" in warm["log"]
    assert all("cold: " in reported for reported in warm["start_report"])
    cold = jobs.ended(jobs.start("python job.py 0", env, cold=True))
    assert {**warm, "start_report": 0} == {**cold, "start_report": 0}


def up(jobs: Jobs, name: str) -> int:
    """The pid of the waiting driver, as it tells itself."""
    until(lambda: re.search(r"^up \d+$", jobs.log(name), re.MULTILINE) is not None, timeout_s=60)
    found = re.search(r"^up (\d+)$", jobs.log(name), re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("cold", [False, True])
def test_a_stopped_job_leaves_no_process(jobs: Jobs, cold: bool) -> None:
    env = {"working_dir": jobs.package({"job.py": WAITING})}
    name = jobs.start("python job.py", env, cold=cold)
    pid = up(jobs, name)
    jobs.stop(name)
    seen = jobs.ended(name)
    assert seen["status"] == "STOPPED"
    assert not psutil.pid_exists(pid)


def test_the_stack_of_a_forked_process_can_be_looked_at(jobs: Jobs) -> None:
    env = {"working_dir": jobs.package({"job.py": WAITING})}
    name = jobs.start("python job.py", env, cold=False)
    pid = up(jobs, name)
    tool = Path(sys.executable).with_name("py-spy")
    line = [tool, "dump", "--pid", str(pid)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    jobs.stop(name)
    jobs.ended(name)
    if "Permission" in done.stderr:
        pytest.skip("no right to look into other processes here")
    assert "<module> (job.py:1)" in done.stdout, done.stderr


def test_a_training_run(cluster: llmops.Cluster, workspace: Path) -> None:
    runs = [_trained(cluster.info, workspace, cold=cold) for cold in (False, True)]
    warm, cold = runs
    assert [reported(run) for run in runs] == [{"warm"}, {"cold"}]
    losses = [[step.loss for step in run.view.steps] for run in runs]
    assert len(losses[0]) == 6
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    assert weights(warm) == weights(cold)
    # What a library says while it is imported, the fork server has heard, in its own log.

    def differing() -> set[str]:
        differs = lines(warm, workspace) ^ lines(cold, workspace)
        return {line for line in differs if "real_accelerator.py" not in line}

    # The driver writes the last lines of its workers after it has reported the end.
    deadline_s = time.monotonic() + 30
    while differing() and time.monotonic() < deadline_s:
        time.sleep(0.5)
    assert differing() == set()


def test_a_run_gets_the_tokenizer_that_the_one_before_has_loaded(
    cluster: llmops.Cluster, workspace: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(prepare("tiny-llama"), tmp_path / "model"))
    add_tokens(model, number=60_000)
    until(lambda: llmops.cluster(cluster.name).info.warm.startswith("warm"), timeout_s=180)
    changes = f"model.id={model}", "hooks.file=null"  # Hooks may change what is loaded.
    first = _trained(cluster.info, workspace, *changes, cold=False)
    until(lambda: (str(model), "tokenizer") in kept(cluster), timeout_s=60)
    kinds = (False, True)
    runs = [first, *(_trained(cluster.info, workspace, *changes, cold=cold) for cold in kinds)]
    assert [KEPT in words_of(run, "data") for run in runs] == [False, True, False]
    losses = [[step.loss for step in run.view.steps] for run in runs]
    assert losses[0] == losses[1] == pytest.approx(losses[2], abs=1e-6)
    assert weights(runs[0]) == weights(runs[1]) == weights(runs[2])
    saved = [files_of(run, "tokenizer") for run in runs]
    assert saved[0] == saved[1] == saved[2]
    add_tokens(model, number=10)
    changed = _trained(cluster.info, workspace, *changes, cold=False)
    assert KEPT not in words_of(changed, "data")


def kept(cluster: llmops.Cluster) -> list[tuple[str, str]]:
    return [(one.model, one.dtype) for one in llmops.cluster(cluster.name).info.warm_kept]


def words_of(run: llmops.Run, phase: str) -> str:
    (event,) = (
        e for e in run.events() if e.kind == "phase" and (e.name, e.state) == (phase, "end")
    )
    return str(event.detail)


def files_of(run: llmops.Run, name: str) -> dict[str, str]:
    found = {path.name: path.read_text() for path in Path(str(run.output)).glob(f"{name}*")}
    assert found
    return found


def _trained(info: ClusterInfo, workspace: Path, *changes: str, cold: bool) -> llmops.Run:
    overrides = ["training.max_steps=6", *changes]
    config = load_training_config(workspace / "chaos.train.yaml", overrides)
    cluster = llmops.cluster(info.name)
    with cluster.client() as client:
        submission = Submission(
            kind=kind_named("train"),
            config=config,
            workspace=workspace,
            env_vars=COLD if cold else None,
        )
        record, _ = submit_run(submission, store=RunStore(), cluster=info, client=client)
    run = llmops.attach(record.run_id)
    assert run.wait(400) == "SUCCEEDED"
    return run


def reported(run: llmops.Run) -> set[str]:
    found = {"warm" if e.warm else "cold" for e in run.events() if e.kind == "process"}
    assert found
    return found


def weights(run: llmops.Run) -> dict[str, list[float]]:
    from safetensors.numpy import load_file

    (path,) = Path(str(run.output)).rglob("*.safetensors")
    return {name: tensor.flatten().tolist() for name, tensor in load_file(path).items()}


def lines(run: llmops.Run, workspace: Path) -> set[str]:
    """The log, without what two cold runs differ in too; processes speak in any order.

    A slow machine draws more states of a progress bar, and makes a run wait for resources. Only
    a warm run says how it came by its model, which its node keeps.
    """
    parts = re.split(r"[\r\n]+", run.logs())
    kept = [part for part in parts if "%|" not in part and not _WAITS.search(part)]
    text = "\n".join(start_reports_of("\n".join(kept))[1])
    text = text.replace(run.record.run_id, "RUN").replace(str(workspace), "")
    text = re.sub(r"model load done.*", "model load done", text)
    text = re.sub(r"\x1b\[\d*m|\bpid=\d+|0x[0-9a-f]+|_ray_pkg_\w+", "", text)
    return set(re.sub(r"#?\d[\d.,:e-]*|#", "#", text).splitlines())
