"""Scripts as runs on a real cluster: from the command line and the API, however they end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.models import catalogue
from llmops_kernel.providers.protocol import ClusterInfo
from tests.costs import assert_costs_one_node
from tests.driver.test_packages import wheel
from tests.end_to_end.script_runs import succeeded, write
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SCRIPTS = NOTEBOOKS / "scripts"

STEPS = """
    import sys, time
    import torch, torch.distributed as dist
    from llmops_kernel import track

    dist.init_process_group("gloo")
    path = track.resume_checkpoint()
    done = torch.load(path)["step"] if path else 0
    total = int(sys.argv[1])
    track.start(total_steps=total)
    for step in range(done + 1, total + 1):
        time.sleep(0.05)
        dist.barrier()
        track.step(step=step, loss=1.0 / step, tokens_per_worker=10)
        if track.should_stop():
            print(f"rank {dist.get_rank()} leaves at {step}", flush=True)
            if dist.get_rank() == 0:
                torch.save({"step": step}, "state.pt")
            track.checkpoint("state.pt", step=step)
            break
    dist.destroy_process_group()
"""
COMMAND_LINES = """
    import sys
    from contextlib import suppress
    from pathlib import Path
    from llmops_kernel.store.record import RunSpec

    [secret] = sys.argv[1:]
    found = []
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(path.read_text(errors="replace"))
    for line in lines:
        plain = line
        for word in line.replace(chr(0), " ").split():
            with suppress(Exception):
                plain += str(RunSpec.decode(word).config)
        if secret in plain:
            found.append(line)
    assert any("llmops_kernel.train.script.entrypoint" in line for line in lines)
    print(f"command lines read, with the config: {found}", flush=True)
"""


def test_a_ddp_script_on_two_workers(ray_cluster: ClusterInfo) -> None:
    cluster = llmops.cluster(ray_cluster.name)
    run = succeeded(cluster.submit(SCRIPTS / "ddp.script.yaml", args=["--steps", "5"]))
    assert run.record.kind == "script"
    assert run.config.num_workers == 2
    metrics = run.metrics()
    assert list(metrics.index) == [1, 2, 3, 4, 5]
    assert set(metrics["tokens"]) == {128}
    phases = {span.name for span in run.view.phases()}
    assert {"snapshot", "upload", "pending", "driver", "workers", "first_step"} <= phases
    assert_costs_one_node(run)
    # The same script again, with one argument changed.
    again = succeeded(run.resubmit(args=["--steps", "3"]))
    assert [change[0] for change in again.diff(run).config] == ["args"]


def test_lightning_from_the_command_line(ray_cluster: ClusterInfo) -> None:
    words = ["submit", str(SCRIPTS / "lightning_train.py"), "--cluster", ray_cluster.name]
    done = subprocess.run(
        [sys.executable, "-m", "llmops_kernel.cli.main", *words, "--follow", "--", "--steps", "4"],
        capture_output=True,
        text=True,
        timeout=180,
        env=os.environ,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = llmops.attach("last")
    assert run.config.args == ("--steps", "4")
    metrics = run.metrics()
    assert list(metrics.index) == [1, 2, 3, 4]
    assert set(metrics["tokens"]) == {32}
    assert run.view.total_steps == 4


def test_two_towers_on_two_workers_find_dishes_that_they_have_not_seen(
    ray_cluster: ClusterInfo,
) -> None:
    run = llmops.cluster(ray_cluster.name).submit(
        NOTEBOOKS / "two-tower.script.yaml", args=["--model", "tiny-llama", "--steps", "30"]
    )
    succeeded(run)
    before, after = run.view.evals
    assert (before.step, after.step) == (0, 30)
    recalls = [one.metrics["eval_recall@10"] for one in (before, after)]
    assert recalls[0] < 0.1 < 0.15 < recalls[1]  # 10 of 192 at random.
    metrics = run.metrics()
    assert list(metrics.index) == list(range(1, 31))
    assert metrics["loss"].iloc[-5:].mean() < metrics["loss"].iloc[:5].mean() - 1
    assert (metrics["tokens"] > 64 * 20).all(), "of both workers"
    assert metrics["mfu"].iloc[1:].between(0, 1, inclusive="neither").all()
    assert run.view.checkpoints


def test_rays_documented_trainer_with_transformers(ray_cluster: ClusterInfo) -> None:
    model = catalogue.prepare("tiny-llama")
    run = llmops.cluster(ray_cluster.name).submit(
        SCRIPTS / "ray_trainer.py",
        workspace=NOTEBOOKS,
        args=["--model", str(model), "--workers", "2", "--steps", "4"],
    )
    succeeded(run)
    steps = run.view.steps
    assert [step.step for step in steps] == [1, 2, 3, 4]
    assert all((step.tokens or 0) > 0 for step in steps)
    assert all((step.flops or 0) > 0 for step in steps), "the model was handed over"
    assert run.view.start is not None
    assert run.view.start.num_workers == 2
    assert run.view.total_steps == 4


def test_a_script_on_a_warm_process_is_as_a_new_interpreter(
    ray_cluster: ClusterInfo, tmp_path: Path
) -> None:
    cluster = llmops.cluster(ray_cluster.name)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "mine.py").write_text("WHO = 'found'")
    found = """
        import os, mine
        print(f"PATH {mine.WHO} {os.environ.get('RANK')}", flush=True)
    """
    script = write(tmp_path, found, "path.py")
    run = succeeded(cluster.submit(script, env={"PYTHONPATH": "more"}))
    assert "PATH found None" in run.logs()
    assert run.view.warmth is not None
    assert run.view.warmth.text == "warm"
    run = succeeded(cluster.submit(script, env={"PYTHONPATH": "more"}, num_workers=1))
    assert "PATH found 0" in run.logs()
    early = """
        import os
        os.environ["HF_HOME"] = "mine"
        import huggingface_hub.constants
        print(f"HOME {huggingface_hub.constants.HF_HOME}", flush=True)
    """
    for workers in (None, 2):
        run = succeeded(cluster.submit(write(tmp_path, early, "early.py"), num_workers=workers))
        assert "HOME mine" in run.logs()
        assert run.view.warmth is not None
        assert run.view.warmth.warm == 0
        assert "early.py sets what is read when libraries load: HF_HOME" in run.view.warmth.text


def test_a_run_with_packages_of_its_own(ray_cluster: ClusterInfo, tmp_path: Path) -> None:
    cluster = llmops.cluster(ray_cluster.name)
    wheel(tmp_path / "wheels", "llmops-extra", "1.0", needs="llmops-deep")
    wheel(tmp_path / "wheels", "llmops-deep", "2.5")
    (tmp_path / "more.txt").write_text("--no-index\n--find-links ./wheels\n")
    code = """
        import llmops_extra, llmops_deep
        print(f"EXTRA {llmops_extra.VERSION} {llmops_deep.VERSION}", flush=True)
    """
    script = write(tmp_path, code)
    failed = cluster.submit(script)
    assert failed.wait(120, raise_on_failure=False) == "FAILED"
    assert "`packages: [llmops-extra]`" in failed.view.remedy
    wanted = {"packages": ["llmops-extra==1.0"], "requirements": "more.txt"}
    for workers in (None, 2):
        run = succeeded(cluster.submit(script, num_workers=workers, **wanted))
        assert "EXTRA 1.0 2.5" in run.logs()
        assert run.view.warmth is not None
        assert run.view.warmth.text == "warm"
        [span] = [span for span in run.view.phases() if span.name == "packages"]
        assert "llmops-extra 1.0" in span.detail
        assert ("already there" in span.detail) is (workers is not None)
    broken = cluster.submit(script, packages=["llmops-extra==9"], requirements="more.txt")
    assert broken.wait(120, raise_on_failure=False) == "FAILED"
    assert "No matching distribution found for llmops-extra==9" in broken.view.message


def test_all_ranks_stop_at_one_step_and_a_retry_resumes(
    ray_cluster: ClusterInfo, tmp_path: Path
) -> None:
    cluster = llmops.cluster(ray_cluster.name)
    run = cluster.submit(write(tmp_path, STEPS), args=["400"], num_workers=2)
    until(lambda: len(run.view.steps) >= 3)
    run.stop()
    assert run.wait(120) == "STOPPED", run.logs()
    left = {line.split("leaves at ")[1] for line in run.logs().splitlines() if "leaves at" in line}
    assert len(left) == 1, run.logs()
    step = run.view.last_step
    assert left == {str(step)}
    assert "after saving a checkpoint" in run.view.message
    run.retry()
    until(lambda: run.view.attempt == 2 and (run.view.last_step or 0) > (step or 0))
    run.stop()
    assert run.wait(120) == "STOPPED"
    assert [one.step for one in run.view.steps][: step or 0] == list(range(1, (step or 0) + 1))


def test_each_worker_resumes_from_what_rank_0_chose(
    ray_cluster: ClusterInfo, tmp_path: Path
) -> None:
    """Rank 1 looks when the folder has a checkpoint that rank 0 did not see."""
    script = """
        import sys
        from pathlib import Path
        import torch.distributed as dist
        from llmops_kernel import track

        dist.init_process_group("gloo")
        if dist.get_rank() == 1:
            dist.barrier()
        found = track.resume_checkpoint()
        Path(sys.argv[1], f"rank-{dist.get_rank()}").write_text(str(found))
        if dist.get_rank() == 0:
            Path("state").write_text("new")
            track.checkpoint("state", step=7)
            dist.barrier()
        dist.barrier()
    """
    cluster, found = llmops.cluster(ray_cluster.name), tmp_path / "found"
    found.mkdir()
    succeeded(cluster.submit(write(tmp_path, script), args=[str(found)], num_workers=2))
    assert {path.name: path.read_text() for path in found.iterdir()} == {
        "rank-0": "None",
        "rank-1": "None",
    }


@pytest.mark.parametrize("num_workers", [None, 2])
def test_a_failure_names_the_users_line(
    ray_cluster: ClusterInfo, tmp_path: Path, num_workers: int | None
) -> None:
    path = write(tmp_path, "def load():\n    raise ValueError('no rows')\n\nload()\n")
    settings = {} if num_workers is None else {"num_workers": num_workers}
    run = llmops.cluster(ray_cluster.name).submit(path, **settings)
    until(lambda: run.has_ended)
    assert run.state == "FAILED"
    assert run.view.message == "ValueError: no rows (train.py:2)"
    [failure] = run.view.failures
    assert (failure.file, failure.line) == ("train.py", 2)
    assert failure.ranks == (() if num_workers is None else (0, 1))


def test_a_failure_inside_a_worker_of_ray_train(ray_cluster: ClusterInfo, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        from ray.train import ScalingConfig
        from ray.train.torch import TorchTrainer

        def train_func():
            raise ValueError("no rows")

        TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=1)).fit()
        """,
    )
    run = llmops.cluster(ray_cluster.name).submit(path)
    until(lambda: run.has_ended)
    assert run.state == "FAILED"
    [failure] = run.view.failures
    assert (failure.error, failure.file, failure.line) == ("ValueError", "train.py", 6)


def test_a_script_that_reports_nothing(ray_cluster: ClusterInfo, tmp_path: Path) -> None:
    path = write(tmp_path, "import sys\nprint('hello', *sys.argv[1:])\n")
    run = succeeded(llmops.cluster(ray_cluster.name).submit(path, args=["world", "a b"]))
    assert "hello world a b" in run.logs()
    assert run.view.steps == []
    assert_costs_one_node(run)
    assert "driver" in {span.name for span in run.view.phases()}


def test_a_stop_of_a_script_that_never_asks(ray_cluster: ClusterInfo, tmp_path: Path) -> None:
    path = write(tmp_path, "import time\nprint('script runs', flush=True)\ntime.sleep(300)\n")
    run = llmops.cluster(ray_cluster.name).submit(path)
    # A whole line: Ray logs sentences of its own before the driver starts.
    until(lambda: "script runs" in run.logs().splitlines())
    run.stop()
    assert run.wait(150) == "STOPPED"
    assert "track.should_stop()" in run.view.message


def test_a_stop_before_the_driver_has_started(ray_cluster: ClusterInfo, tmp_path: Path) -> None:
    path = write(tmp_path, "import time\ntime.sleep(300)\n")
    run = llmops.cluster(ray_cluster.name).submit(path)
    run.stop()
    assert run.wait(150) == "STOPPED"
    # The driver may have been quicker than the request.
    assert "before the driver had started" in run.view.message or run.view.has_begun


def test_a_script_that_is_not_there_is_refused_before_anything_starts(
    ray_cluster: ClusterInfo, tmp_path: Path
) -> None:
    with pytest.raises(llmops.ConfigError, match="no such file"):
        llmops.cluster(ray_cluster.name).submit(tmp_path / "trian.py")


def test_no_command_line_on_the_host_has_anything_of_the_config(
    ray_cluster: ClusterInfo, tmp_path: Path
) -> None:
    """Every user of a host sees the command lines of all processes, with `ps`."""
    path = write(tmp_path, COMMAND_LINES)
    for settings in ({}, {"num_workers": 1}):
        args = ["only-in-the-config"]
        run = llmops.cluster(ray_cluster.name).submit(path, args=args, **settings)
        log = succeeded(run).logs()
        assert "command lines read, with the config: []" in log, (settings, log)
