"""Steps per second of a training beside MLflow, beside one that was killed, and beside nobody.

    python -m tests.benchmarks.trackers [--rounds 8] [--window 8] [--batch 64]

One training of the tiny model on a local cluster, with a real MLflow server on this machine, in
windows that take turns: `nobody`, where the process that reports is stopped by a signal; `up`; and
`down`, where the server has just been killed. A window begins when what the change has caused is
over: the server is loaded, and the sender has sent what was waiting. Printed are the medians, and
the median over the rounds of the ratio to `nobody`. At the end all that MLflow has of the run is
compared with its journal. The server's own share of the cores counts against `up`: both shares are
printed with each window. Needs what `make trackers` makes.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.driver.report import PYTHON_ENV_VAR
from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.store.compiled_ops import will_compile
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.paths import HOME_ENV_VAR
from llmops_kernel.trackers.forwarder import Places
from tests.end_to_end.conftest import processes
from tests.tiny_training import write_training
from tests.trackers.real import environment as env
from tests.waiting import until

SIDES = ("nobody", "up", "down")
_SENDER = "llmops_kernel.trackers.process"
_SETTLE_S = 2.0
_MAX_STEPS = 1_000_000
"""The run is stopped when the last window is over."""


class Reported:
    """A run that reports to MLflow, and the server, which may be killed and started."""

    def __init__(self, folder: Path, stack: ExitStack, *, batch: int) -> None:
        self._folder, self._stack, self._port = folder, stack, env.free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        self._server: subprocess.Popen[bytes] | None = None
        self.shares = (0.0, 0.0)
        """Of a core, that the sender and the server used in the last window."""
        self.start_server()
        config = write_training(
            folder / "workspace",
            "tags",  # The experiment that `env.read_back` looks for.
            rows=512,
            training={
                "max_steps": _MAX_STEPS,
                "micro_batch_size": batch,
                "global_batch_size": batch,
            },
            report_to=["mlflow"],
            tracking={"mlflow_uri": self.address},
        )
        self.run = llmops.cluster("bench").submit(config)
        until(lambda: processes(_SENDER))
        self.wait_for_sent()

    def start_server(self) -> None:
        if self._server is None:
            server = env.mlflow_server(self._folder, self._port)
            self._server = self._stack.enter_context(server)

    def kill_server(self) -> None:
        if self._server is not None:
            env.kill(self._server)
            self._server = None

    def wait_for_sent(self) -> None:
        """Wait until MLflow has confirmed all steps that there are by now."""
        num_steps = len(self._steps())
        until(lambda: self._num_sent() >= num_steps)

    def _num_sent(self) -> int:
        """Return how many steps MLflow has confirmed: nothing else of this run has a place."""
        places = Places(self.run.folder.trackers / "mlflow.state")
        return places.rows_before(places.num_sent)

    @contextmanager
    def side(self, name: str) -> Iterator[None]:
        """Bring about one side, until what the change has caused is over."""
        senders = processes(_SENDER)
        if name == "up":
            self.start_server()
            self.wait_for_sent()
        elif name == "down":
            self.kill_server()
        else:
            for process in senders:
                process.send_signal(signal.SIGSTOP)
        time.sleep(_SETTLE_S)
        try:
            yield
        finally:
            for process in senders:
                process.send_signal(signal.SIGCONT)

    def rate(self, window_s: float) -> float:
        """Return the steps per second of the next seconds."""
        begun_s, before = time.time(), self._processor_s()
        time.sleep(window_s)
        ended_s, after = time.time(), self._processor_s()
        sender, server = (b - a for a, b in zip(before, after, strict=True))
        self.shares = sender / (ended_s - begun_s), server / (ended_s - begun_s)
        time.sleep(1.0)  # What is journalled is read a moment later.
        times_s = [step.time_s for step in self._steps() if begun_s <= step.time_s <= ended_s]
        return (len(times_s) - 1) / (times_s[-1] - times_s[0])

    def _processor_s(self) -> tuple[float, float]:
        """Return the processor time of the sender, and of the server with what it has started."""
        server = [] if self._server is None else [psutil.Process(self._server.pid)]
        server += [child for each in server for child in each.children(recursive=True)]
        return _processor_s(processes(_SENDER)), _processor_s(server)

    def _steps(self) -> Sequence[StepEvent]:
        view = self.run.view
        assert isinstance(view, TrainingView)
        return view.steps

    def missing(self) -> str:
        """Stop the run, wait for its sender, and say what MLflow lacks or has twice."""
        self.start_server()
        self.run.stop()
        self.run.wait(raise_on_failure=False)
        until(lambda: not processes(_SENDER))
        found = env.read_back("mlflow", self._folder, MLFLOW_TRACKING_URI=self.address)
        sent = Counter(
            (step, value) for name, step, value in found["points"] if name == "train/loss"
        )
        journalled = Counter((step.step, step.loss) for step in self._steps())
        lacks, has_more = journalled - sent, sent - journalled
        if lacks or has_more:
            return f"of {journalled.total()} steps {lacks.total()} missing, {has_more.total()} more"
        return f"nothing missing: {sent.total():,} steps in MLflow and in the journal, each once"


def _processor_s(those: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in those)


def measure(folder: Path, *, rounds: int, window_s: float, batch: int) -> None:
    os.environ[PYTHON_ENV_VAR] = env.python()
    provider = LocalProvider()
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    with ExitStack() as stack:
        provider.up(ClusterTemplate(name="bench"), progress=print)
        stack.callback(provider.down, "bench")
        until(lambda: not will_compile())  # It takes both cores.
        reported = Reported(folder, stack, batch=batch)
        for number in range(rounds):
            turn = number % len(SIDES)
            for side in SIDES[turn:] + SIDES[:turn]:
                with reported.side(side):
                    rates[side].append(reported.rate(window_s))
                sender, server = reported.shares
                print(
                    f"round {number + 1}, {side}: {rates[side][-1]:.2f} steps/s;"
                    f" sender {sender:.2f}, server {server:.2f} of a core",
                    flush=True,
                )
        print(reported.missing())
    for side in SIDES:
        ratios = [a / b for a, b in zip(rates[side], rates["nobody"], strict=True)]
        print(
            f"{side}: median {statistics.median(rates[side]):.2f} steps/s,"
            f" {statistics.median(ratios):.3f} of nobody ({min(ratios):.3f} - {max(ratios):.3f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--window", type=float, default=8.0, help="seconds")
    parser.add_argument("--batch", type=int, default=64, help="rows of a step")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-b-") as folder:
        os.environ[HOME_ENV_VAR] = f"{folder}/home"
        measure(
            Path(folder),
            rounds=arguments.rounds,
            window_s=arguments.window,
            batch=arguments.batch,
        )


if __name__ == "__main__":
    main()
