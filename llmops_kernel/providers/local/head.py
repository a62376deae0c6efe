"""The process of a head: `python -m llmops_kernel.providers.local.head start --head ...`.

It is `ray start`, which imports Ray for half a second before its start hook is called. The fork
server begins to import meanwhile, as the first submission waits for it.
"""

from __future__ import annotations

import os
import runpy

from llmops_kernel.warm import start_hook

# Ray 2.60 sets it when it is imported, so workers have it; a fork server without it refuses them.
SET_BY_RAY = {"RAY_CLIENT_MODE": "0"}


def main() -> None:
    os.environ.update(SET_BY_RAY)
    start_hook.begin()
    runpy.run_module("ray.scripts.scripts", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
