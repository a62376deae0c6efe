"""The process of a local head: `python -m llmops_kernel.providers.local.start_hook start --head`.

It is `ray start`, with a part before it (`main`) and one inside it, before anything has started
(`configure`, named by RAY_START_HOOK).
"""

from __future__ import annotations

import os
import runpy
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from llmops_kernel.warm import start_hook as warm

_NICENESS = 15  # Of Ray's own workers too, so a busy node leaves the monitors a share.

_AUTOSCALER_S = 5  # After the log monitor.
_ASK_S = 0.1

# Ray 2.60 sets it when it is imported, so workers have it; a fork server without it refuses them.
SET_BY_RAY = {"RAY_CLIENT_MODE": "0"}


def main() -> None:
    """Begin with the fork server: `ray start` imports Ray for half a second before its hook."""
    os.environ.update(SET_BY_RAY)
    warm.begin()
    runpy.run_module("ray.scripts.scripts", run_name="__main__", alter_sys=True)


def configure(params: Any, head: bool) -> None:
    """Configure the head: no Ray Client server (an unused process and open port), warm workers.

    The command line has no switch for it. `params` is ray._private.parameter.RayParams.
    """
    from ray._private import services
    from ray._private.node import Node

    assert head
    params.ray_client_server_port = None
    overlap(Node)
    wait_for_raylet(Node, services)
    tell_listen_port(params, services)
    warm.use_launcher(params)  # `main` has started the keeper.
    # What the cluster runs may start a Ray of its own, which is none of our business.
    os.environ.pop("RAY_START_HOOK", None)


def overlap(node_type: Any) -> None:
    """Start the parts of a head beside each other instead of one after the other.

    `ray start` waits for the dashboard before it starts the raylet, though neither needs the other,
    and starts the autoscaler's monitor and the log monitor before them, though a cluster is usable
    without those. With this the raylet starts beside the dashboard, and those two a second after
    the head is ready. `node_type` is ray._private.node.Node of Ray 2.60, which constraints.txt
    pins.
    """
    start_dashboard, start_rest = node_type.start_api_server, node_type.start_ray_processes

    def begin_dashboard(node: Any, **options: Any) -> None:
        params = node._ray_params
        # Workers get it; the dashboard has no other port to choose.
        node._webui_url = f"{params.dashboard_host}:{params.dashboard_port}"
        node.dashboard_start = _in_thread(partial(start_dashboard, node, **options))

    def start_beside(node: Any) -> None:
        try:
            start_rest(node)
        finally:
            # Also before an error: what is started until then is stopped with the head.
            wait([node.dashboard_start])
        node.dashboard_start.result()  # Raises what `ray start` would have raised.

    node_type.start_api_server, node_type.start_ray_processes = begin_dashboard, start_beside
    _put_off_monitors(node_type)


class RayletEnded(Exception):
    """The raylet ended while it was starting; its log says why."""


def wait_for_raylet(node_type: Any, services: Any) -> None:
    """Let `ray start` wait for its raylet for as long as that lives.

    Ray 2.60 gives up after a fixed 30 s (`Node.__init__`), which is too short on a busy machine.
    Each time that it asks takes up to RAY_raylet_start_wait_time_s, minutes here, also when the
    raylet has ended. `services` is the module ray._private.services.
    """
    start_rest, get_node = node_type.start_ray_processes, services.get_node

    def start(node: Any) -> None:
        start_rest(node)
        services.get_node = partial(_ask_until_it_ends, get_node, node)

    node_type.start_ray_processes = start


def _ask_until_it_ends(get_node: Callable[..., Any], node: Any, *arguments: Any) -> Any:
    while True:
        answer = _in_thread(partial(get_node, *arguments), stays=False)
        while not wait([answer], timeout=_ASK_S).done:
            _raise_if_ended(node)
        try:
            return answer.result()
        except RuntimeError:  # It is not in the GCS's list yet.
            _raise_if_ended(node)
        time.sleep(_ASK_S)


def _raise_if_ended(node: Any) -> None:
    codes = [process_info.process.poll() for process_info in node.all_processes.get("raylet", [])]
    if codes and None not in codes:
        raise RayletEnded(f"the raylet ended with exit code {codes[0]} while it was starting")


def tell_listen_port(params: Any, services: Any) -> None:
    """Tell the raylet the port that the agent on its node is told to listen on, if there is one.

    Ray 2.60 tells it of the other ports. It waits for a file with this one for a fixed 15 s, and
    ends when the agent needs longer to start, as on a busy machine.
    """
    port, start = params.dashboard_agent_listen_port, services.start_ray_process

    def begin(command: list[str], process_type: str, **options: Any) -> Any:
        if port and process_type == "raylet":
            command = [*command, f"--dashboard_agent_listen_port={port}"]
        return start(command, process_type, **options)

    services.start_ray_process = begin


def _put_off_monitors(node_type: Any) -> None:
    """Start them when `ray start` asks for dead processes, each second once it is ready.

    The log monitor at the first time: what workers print before it has looked is lost. The
    autoscaler's later: both import Ray, and the first submission needs the cores. It has nothing to
    scale here, but Ray's API shows what it has seen. A head without it goes on.
    """
    find_dead = node_type.dead_processes
    scaler = partial(_or_print, node_type.start_monitor)
    each_second = iter([node_type.start_log_monitor, *[None] * _AUTOSCALER_S, scaler])

    def start(node: Any, begin: Callable[[Any], None]) -> None:
        # The niceness of this thread and of the process that it starts.
        os.setpriority(os.PRIO_PROCESS, 0, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
        begin(node)

    def dead(node: Any) -> Any:
        try:
            processes = find_dead(node)
        except RuntimeError:  # A monitor joined Ray's dictionary while it was read.
            processes = find_dead(node)
        if processes:
            return processes
        for monitor in node.monitors_begun:
            if monitor.done():
                monitor.result()  # Raises what `ray start` would have raised.
        if (begin := next(each_second, None)) is not None:
            # Not in this thread: Ray asks the GCS first, which may just have died, and this thread
            # is the one that notices and ends the head.
            node.monitors_begun.append(_in_thread(partial(start, node, begin)))
        return processes

    node_type.monitors_begun = []
    node_type.start_monitor = node_type.start_log_monitor = lambda node: None
    node_type.dead_processes = dead


def _or_print(start: Callable[[Any], None], node: Any) -> None:
    try:
        start(node)
    except Exception:
        traceback.print_exc()


def _in_thread(start: Callable[[], Any], *, stays: bool = True) -> Future[Any]:
    """Start processes of the head. Linux kills them when the thread ends, so it `stays`.

    Ray asks for that (PR_SET_PDEATHSIG), so that none of them outlives its head.
    """
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(start())
        except BaseException as error:
            future.set_exception(error)
        if stays:
            threading.Event().wait()

    threading.Thread(target=run, name="llmops-start", daemon=True).start()
    return future


if __name__ == "__main__":
    main()
