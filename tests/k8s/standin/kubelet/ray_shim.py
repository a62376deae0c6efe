"""Stands in front of `ray` in a pod: gives a node of Ray the addresses and ports of its pod.

Pods share one network here, so what a container may choose freely (ports, folders) is chosen by
the kubelet; it comes in the variable STANDIN_RAY.
"""

import json
import os
import sys

OURS = (
    "port", "dashboard-host", "dashboard-port", "dashboard-agent-listen-port", "node-ip-address",
    "metrics-export-port", "ray-client-server-port", "temp-dir", "object-store-memory",
    "min-worker-port", "max-worker-port", "plasma-directory",
)  # fmt: skip


def rewritten(arguments: list[str], given: dict) -> list[str]:
    kept, drop_next = [], False
    for argument in arguments:
        name, equals, _ = argument.removeprefix("--").partition("=")
        if drop_next:
            drop_next = False
        elif argument.startswith("--") and name in OURS:
            drop_next = not equals
        else:
            kept.append(argument)
    is_head = "--head" in kept
    kept += [
        f"--{flag}={value}" for flag, value in given["flags"].items()
        if is_head or flag not in ("port", "dashboard-host", "dashboard-port",
                                   "ray-client-server-port", "temp-dir")
    ]  # fmt: skip
    return [*kept, "--disable-usage-stats"]


def main() -> None:
    given = json.loads(os.environ["STANDIN_RAY"])
    arguments = sys.argv[1:]
    if arguments[:1] == ["stop"]:
        # The real one would end every Ray on this machine.
        print("left to the kubelet")
        return
    if arguments[:1] == ["start"]:
        arguments = rewritten(arguments, given)
    if arguments[:1] == ["kuberay-autoscaler"]:
        flags = given["flags"]
        arguments.append(f"--gcs-address={flags['node-ip-address']}:{flags['port']}")
    os.execv(given["ray"], [given["ray"], *arguments])


if __name__ == "__main__":
    main()
