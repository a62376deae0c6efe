"""Runs inside `ray start` of a pod (RAY_START_HOOK): warm workers in an image without our package.

A ConfigMap contains this file and the part of our package that starts warm workers. Only the keeper
and its server have that part on their path: jobs bring their own complete package, and an image may
have one as well.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

_DIR_ENV_VAR = "LLMOPS_WARM_DIR"


def configure(params: Any, head: bool) -> None:
    """Start warm workers; `params` is ray._private.parameter.RayParams.

    On any failure the node starts cold.
    """
    before = os.environ.get("PYTHONPATH")
    path = list(sys.path)
    try:
        _warm(params, head)
    except Exception:
        traceback.print_exc()
        print("llmops: no warm workers on this node, see above", file=sys.stderr, flush=True)
    finally:
        sys.path[:] = path
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before
        # What the cluster runs may start a Ray of its own, which is none of our business.
        os.environ.pop("RAY_START_HOOK", None)


def _warm(params: Any, head: bool) -> None:
    folder = Path(os.environ[_DIR_ENV_VAR])
    code = str(_laid_out(folder.with_name("code")))
    sys.path.insert(0, code)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH")]))
    from llmops_kernel.warm import start_hook
    from llmops_kernel.warm.files import WarmFolder

    start_hook.configure(params, head)
    # `python` of a job's entrypoint is then the launcher; the image's own PATH is behind it.
    image = os.environ.get("PATH") or os.defpath
    os.environ["PATH"] = os.pathsep.join([str(WarmFolder(folder).bin), image])


def _laid_out(code: Path) -> Path:
    """Copy the files: a ConfigMap has no folders, and changes while the node runs."""
    for file in sorted(Path(__file__).absolute().parent.glob("*-*.py")):
        place = code / file.name.replace("-", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    return code
