"""The parts of a head are started beside each other, and an error of one ends `ray start`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import wait
from types import SimpleNamespace
from typing import Any

import pytest

from llmops_kernel.providers.local import start_hook
from llmops_kernel.providers.local.start_hook import overlap

_PARAMS = SimpleNamespace(dashboard_host="127.0.0.1", dashboard_port=8265)
_PROGRAM = """\
import json, os
before = dict(os.environ)
import ray.scripts.scripts
print(json.dumps({name: value for name, value in os.environ.items() if before.get(name) != value}))
"""


def node_type(*, broken: frozenset[str] = frozenset(), gcs: threading.Event | None = None) -> Any:
    """A class with the methods of Ray's that are changed; the dashboard waits for the raylet."""

    class Node:
        _ray_params, _webui_url, has_raylet = _PARAMS, "", threading.Event()

        def __init__(self) -> None:
            self.done, self.dead, self.niceness = [], [], {}
            self.start_monitor()
            self.start_api_server(include_dashboard=True, raise_on_failure=True)
            self.start_ray_processes()

        def _start(self, name: str) -> None:
            if name in broken:
                raise RuntimeError(f"{name} is broken")
            self.done.append(name)
            self.niceness[name] = os.getpriority(os.PRIO_PROCESS, 0)

        def start_monitor(self) -> None:
            assert gcs is None or gcs.wait(30)  # Ray asks it which autoscaler is on.
            self._start("monitor")

        def start_log_monitor(self) -> None:
            self._start("log monitor")

        def start_api_server(self, *, include_dashboard: bool, raise_on_failure: bool) -> None:
            assert include_dashboard and raise_on_failure and self.has_raylet.wait(30)  # noqa: PT018
            self._start("dashboard")

        def start_ray_processes(self) -> None:
            assert self._webui_url == "127.0.0.1:8265"
            self.start_log_monitor()
            self.has_raylet.set()
            self._start("raylet")

        def dead_processes(self) -> list[str]:
            return list(self.dead)

    return Node


def look(started: Any, *, times: int) -> None:
    """What `ray start` does each second; here at once, waiting for what it has begun."""
    for _ in range(times):
        assert started.dead_processes() == []
        wait(started.monitors_begun, timeout=30)


def test_the_raylet_does_not_wait_for_the_dashboard() -> None:
    node = node_type()
    overlap(node)
    started = node()
    assert sorted(started.done) == ["dashboard", "raylet"]
    look(started, times=1)
    assert started.done[2:] == ["log monitor"]


def test_the_monitor_that_scales_nothing_waits_for_the_first_submission() -> None:
    node = node_type()
    overlap(node)
    started = node()
    look(started, times=6)
    assert started.done[2:] == ["log monitor"]
    look(started, times=10)
    assert started.done[2:] == ["log monitor", "monitor"]


def test_monitors_give_way_to_the_imports_of_the_fork_server() -> None:
    node = node_type()
    overlap(node)
    started = node()
    look(started, times=7)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert started.niceness["monitor"] == started.niceness["log monitor"] == max(15, own)
    assert started.niceness["raylet"] == own


def test_a_gcs_that_dies_before_the_monitors_start_is_noticed() -> None:
    gcs = threading.Event()
    node = node_type(gcs=gcs)
    overlap(node)
    started = node()
    for _ in range(7):
        assert started.dead_processes() == []
    started.dead.append("gcs_server")
    assert started.dead_processes() == ["gcs_server"]
    gcs.set()


def test_a_log_monitor_that_does_not_start_ends_the_head() -> None:
    node = node_type(broken=frozenset({"log monitor"}))
    overlap(node)
    started = node()
    look(started, times=1)
    with pytest.raises(RuntimeError, match="log monitor is broken"):
        started.dead_processes()


def test_the_monitor_that_scales_nothing_ends_no_head(capsys: pytest.CaptureFixture[str]) -> None:
    node = node_type(broken=frozenset({"monitor"}))
    overlap(node)
    started = node()
    look(started, times=8)
    assert started.dead_processes() == []
    assert "monitor is broken" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["dashboard", "raylet"])
def test_a_part_that_does_not_start_is_an_error(part: str) -> None:
    node = node_type(broken=frozenset({part}))
    overlap(node)
    with pytest.raises(RuntimeError, match=f"{part} is broken"):
        node()


def test_ray_has_what_is_changed() -> None:
    from ray._private.node import Node

    names = ["start_api_server", "start_ray_processes", "start_monitor", "start_log_monitor"]
    assert all(callable(getattr(Node, name)) for name in [*names, "dead_processes"])


def test_a_head_sets_what_ray_sets_when_it_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, env={}
    )
    assert json.loads(done.stdout) == start_hook.SET_BY_RAY


def test_a_head_is_ray_start() -> None:
    done = subprocess.run(
        [sys.executable, "-m", start_hook.__name__, "start", "--no-such-option"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "start" in done.stderr.splitlines()[0]
    assert "--no-such-option" in done.stderr


def raylet(*codes: int | None) -> Any:
    """A node whose raylet was asked for its end so many times; the last answer stays."""
    left = list(codes)
    process = SimpleNamespace(poll=lambda: left.pop(0) if len(left) > 1 else left[0])
    return SimpleNamespace(all_processes={"raylet": [SimpleNamespace(process=process)]})


def asked(answers: list[Any], node: Any) -> Any:
    """What `ray start` gets when it asks for its node."""

    def get_node(address: str, node_id: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, threading.Event):
            answer.wait(60)  # As long as Ray asks by itself: here until the test is over.
        if answer is None:
            raise RuntimeError("no such node yet")
        return (address, node_id, answer)

    class Node:
        def start_ray_processes(self) -> None:
            self.all_processes = node.all_processes

    services = SimpleNamespace(get_node=get_node)
    start_hook.wait_for_raylet(Node, services)
    Node().start_ray_processes()
    return services.get_node("gcs", "id")


def test_a_slow_raylet_is_waited_for() -> None:
    """Ray's own 30 s are fixed."""
    assert asked([None, None, "up"], raylet(None, None)) == ("gcs", "id", "up")


def test_a_raylet_that_has_ended_is_not() -> None:
    with pytest.raises(start_hook.RayletEnded, match="ended with exit code 1 while"):
        asked([None, None, None], raylet(None, 1))


def test_a_raylet_that_ends_while_ray_asks_for_it_is_noticed_at_once() -> None:
    """Ray's own question takes minutes; a start on a busy machine was said to go on for five."""
    over = threading.Event()
    try:
        with pytest.raises(start_hook.RayletEnded, match="ended with exit code -6 while"):
            asked([over], raylet(None, None, -6))
    finally:
        over.set()


@pytest.mark.parametrize(
    ("port", "told"), [(23984, ["--dashboard_agent_listen_port=23984"]), (0, [])]
)
def test_the_raylet_is_told_the_port_of_its_agent(port: int, told: list[str]) -> None:
    """Else it waits for 15 s for a file with it, and ends."""
    started: dict[str, list[str]] = {}

    def start_ray_process(command: list[str], process_type: str, **options: Any) -> None:
        assert options == {"fate_share": True}
        started[process_type] = command

    services = SimpleNamespace(start_ray_process=start_ray_process)
    start_hook.tell_listen_port(SimpleNamespace(dashboard_agent_listen_port=port), services)
    for name in ("gcs_server", "raylet"):
        services.start_ray_process([name], name, fate_share=True)
    assert started == {"gcs_server": ["gcs_server"], "raylet": ["raylet", *told]}


def test_the_raylet_of_this_ray_knows_that_flag() -> None:
    """An unknown one would end it."""
    from ray._private.services import RAYLET_EXECUTABLE

    done = subprocess.run(
        [RAYLET_EXECUTABLE, "--help"], capture_output=True, text=True, check=False
    )
    assert "-dashboard_agent_listen_port (" in done.stdout
