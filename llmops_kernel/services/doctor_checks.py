"""The checks of `llmops doctor`: what has kept somebody from training, and how to mend it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llmops_kernel.services.folders import cache, home, private_folder, readable_by_others
from llmops_kernel.views.format import byte_size

PACKAGE = "llmops-kernel"
IN_CLONE = (Path(__file__).parents[2] / "constraints.txt").is_file()
REINSTALL = "make install" if IN_CLONE else 'pip install "llmops-kernel[train,lab]"'
_GIB = 2**30
_TORCH_IMPORT_S = 120
_SHOWN_VERSIONS = (
    *(PACKAGE, "ray", "torch", "transformers", "deepspeed", "accelerate", "peft", "datasets"),
    *("jupyterlab", "anywidget"),
)


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, how it is, and the remedy."""

    name: str
    level: Level
    seen: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        line = f"{self.level:<4} {self.name:<14} {self.seen}"
        return f"{line}\n{'':<20}Try: {self.remedy}" if self.remedy else line


Check = Callable[[], Finding]


def ok(name: str, seen: str) -> Finding:
    return Finding(name, Level.OK, seen)


def warn(name: str, seen: str, remedy: str) -> Finding:
    return Finding(name, Level.WARN, seen, remedy)


def fail(name: str, seen: str, remedy: str) -> Finding:
    return Finding(name, Level.FAIL, seen, remedy)


def all_checks() -> list[Check]:
    """Return all checks: the machine, the software, the notebook."""
    return [
        *(memory, shared_memory, disk_space, folders, proxies),
        *(torch_build, ray_release, deepspeed_ops, versions),
        notebook_parts,
    ]


def run_check(check: Check) -> Finding:
    """Run one check; an exception in it becomes a failed finding."""
    try:
        return check()
    except Exception as error:
        name = check.__name__.replace("_", " ")
        seen = f"the check itself failed: {type(error).__name__}: {error}"
        return fail(name, seen, "the other checks are not affected")


def memory() -> Finding:
    """Compare with what the demo takes: below 4 GiB, and two workers of it twice that."""
    import psutil

    total, free = psutil.virtual_memory().total, psutil.virtual_memory().available
    limit = _container_limit()
    is_limited = limit is not None and limit < total
    if limit is not None:
        total, free = min(total, limit), min(free, limit)
    seen = f"{byte_size(free)} free of {byte_size(total)}"
    seen += " (limit of this container)" if is_limited else ""
    remedy = "close other programs, or choose a smaller model or micro batch size"
    return _enough("memory", seen, remedy, free, needed=3 * _GIB, useful=6 * _GIB)


def _enough(
    name: str, seen: str, remedy: str, free: int, *, needed: float, useful: float
) -> Finding:
    if free >= useful:
        return ok(name, seen)
    return fail(name, seen, remedy) if free < needed else warn(name, seen, remedy)


def _container_limit() -> int | None:
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int(Path(file).read_text())
        except (OSError, ValueError):
            continue  # Absent, or the word "max".
    return None


def shared_memory() -> Finding:
    """Check for Ray's object memory, which falls back to slow files on the disk."""
    path = Path("/dev/shm")
    if not path.is_dir():
        return ok("/dev/shm", "does not exist; Ray uses its temp folder instead")
    free = shutil.disk_usage(path).free
    remedy = "start the container with --shm-size=2g or more"
    seen = f"{byte_size(free)} free"
    return _enough("/dev/shm", seen, remedy, free, needed=0, useful=_GIB / 2)


def disk_space() -> Finding:
    """Check the folders that grow: runs, models, Ray's session."""
    places = {
        "LLMOPS_HOME": ("runs", home()),
        "LLMOPS_CACHE": ("cache", cache()),
        "TMPDIR": ("temp", Path(tempfile.gettempdir())),
    }
    free = {name: shutil.disk_usage(_existing(path)).free for name, (_, path) in places.items()}
    seen = ", ".join(
        f"{byte_size(free[name])} free for {what} ({path})" for name, (what, path) in places.items()
    )
    least = min(free, key=lambda name: free[name])
    remedy = f"free some space in {places[least][1]}, or point {least} at a larger disk"
    return _enough("disk", seen, remedy, free[least], needed=_GIB, useful=5 * _GIB)


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


def proxies() -> Finding:
    """Check that no_proxy excludes 127.0.0.1: clients send even loopback traffic to a proxy."""
    names = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")
    used = ", ".join(n for n in names if os.environ.get(n) or os.environ.get(n.upper()))
    if not used:
        return ok("proxy", "none set")
    excluded = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if "127.0.0.1" in excluded or excluded.strip() == "*":
        return ok("proxy", f"{used} set, 127.0.0.1 excluded")
    remedy = "export no_proxy=127.0.0.1,localhost,$no_proxy"
    return warn("proxy", f"{used} set, 127.0.0.1 not excluded", remedy)


# In a separate process: the command stays light, and a broken build that crashes is a finding.
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


def torch_build() -> Finding:
    """Check that torch can be imported and detects the machine's GPUs."""
    torch = _torch()
    if "error" in torch:
        return warn("torch", torch["error"], f"needed to train on this machine: {REINSTALL}")
    build = f"CUDA {torch['cuda']}" if torch["cuda"] else "CPU build"
    seen = f"{torch['version']}, {build}, {torch['threads']} threads"
    if devices := torch["devices"]:
        return ok("torch", f"{seen}, {len(devices)}: {', '.join(sorted(set(devices)))}")
    if _nvidia_gpus():
        how = "pip install --force-reinstall torch==2.13.0"
        how = "make clean; make install TORCH=torch==2.13.0" if IN_CLONE else how
        remedy = f"install the driver, or a CUDA build of torch ({how})"
        return warn("torch", f"{seen}; it does not detect this machine's GPUs", remedy)
    return ok("torch", seen)


def _torch() -> dict[str, Any]:
    """Return torch's version and devices; `error` when it cannot be imported."""
    command = [sys.executable, "-c", _ASK_TORCH]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TORCH_IMPORT_S)
    except subprocess.TimeoutExpired:
        return {"error": f"import torch did not end within {_TORCH_IMPORT_S} s"}
    if done.returncode == 0:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer
    lines = done.stderr.strip().splitlines()
    return {"error": lines[-1] if lines else f"exit code {done.returncode}"}


def _nvidia_gpus() -> bool:
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    done = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=30)
    return done.returncode == 0 and "GPU" in done.stdout


def ray_release() -> Finding:
    version = installed("ray")
    if version is None:
        return warn("Ray", "not installed", f"needed for a cluster on this machine: {REINSTALL}")
    beside = Path(sys.executable).with_name("ray")
    if not beside.exists() and shutil.which("ray") is None:
        seen = f"{version}, but without its command `ray`"
        return fail("Ray", seen, f"reinstall it: {REINSTALL}")
    if find_spec("aiohttp_cors") is None:
        seen = f"{version}, without the dashboard, which is needed to submit jobs"
        return fail("Ray", seen, REINSTALL)
    return ok("Ray", f"{version} with dashboard")


def deepspeed_ops() -> Finding:
    """Check what compiles DeepSpeed's ops, which ZeRO on a CPU needs at its first use."""
    name, version = "DeepSpeed ops", installed("deepspeed")
    if version is None:
        return warn(name, "DeepSpeed is not installed", f"needed for ZeRO: {REINSTALL}")
    packages = {
        "g++": shutil.which("g++") is not None,
        "ninja-build": shutil.which("ninja") is not None or find_spec("ninja") is not None,
        "python3-dev": (Path(sysconfig.get_path("include")) / "Python.h").exists(),
    }
    missing = [package for package, is_there in packages.items() if not is_there]
    if missing:
        seen = f"DeepSpeed {version}; missing to compile: {', '.join(missing)}"
        return warn(
            name, seen, f"only ZeRO on a CPU needs them: apt-get install {' '.join(missing)}"
        )
    return ok(name, f"DeepSpeed {version}, g++, ninja")


def versions() -> Finding:
    """Compare what is installed with the requirements, extras [train] and [lab] included."""
    wrong, missing, count = compare_with_pins(metadata.requires(PACKAGE) or [])
    if wrong:
        return fail("versions", "; ".join(wrong), REINSTALL)
    if missing:
        seen = f"not installed: {', '.join(missing)}"
        return warn("versions", seen, f"needed for a cluster on this machine: {REINSTALL}")
    python = platform.python_version()
    return ok("versions", f"Python {python}, {count} direct requirements installed and in range")


def compare_with_pins(requirements: list[str]) -> tuple[list[str], list[str], int]:
    """Return (not in range, not installed, number of requirements checked)."""
    from packaging.requirements import Requirement

    wrong, missing, count = [], [], 0
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": one}) for one in ("", "train", "lab")):
            continue
        count += 1
        version = installed(requirement.name)
        if version is None:
            missing.append(requirement.name)
        elif not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version} instead of {requirement.specifier}")
    return wrong, missing, count


def installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def installed_versions() -> dict[str, str]:
    """Return the versions of the main packages; "not installed" where one is missing."""
    found = {name: installed(name) or "not installed" for name in _SHOWN_VERSIONS}
    return {**found, "python": platform.python_version()}


def notebook_parts(share: Path | None = None) -> Finding:
    """Check for the Lab extensions: ours, and those of the widget manager and anywidget.

    `share` is Jupyter's folder of them.
    """
    parts = ("jupyterlab", "ipywidgets", "jupyterlab_widgets", "anywidget")
    missing = [part for part in parts if installed(part) is None]
    if missing:
        seen = f"not installed: {', '.join(missing)}"
        return warn("notebook", seen, f"only for notebooks: {REINSTALL}")
    share = share or Path(sys.prefix) / "share" / "jupyter" / "labextensions"
    theirs = ("@jupyter-widgets/jupyterlab-manager", "anywidget")
    absent = [name for name in theirs if not (share / name).exists()]
    if absent:
        seen = f"Lab extensions not in {share}: {', '.join(absent)}"
        return fail("notebook", seen, "pip install --force-reinstall jupyterlab_widgets anywidget")
    ours = share / "@llmops/lab"
    try:
        package = json.loads((ours / "package.json").read_text())
        load = ours / package["jupyterlab"]["_build"]["load"]
        reason = "" if load.is_file() else f"{load} is missing"
    except FileNotFoundError:
        reason = f"it is not in {ours.parent}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{ours / 'package.json'} cannot be used ({error!r})"
    if reason:
        remedy = "make lab" if IN_CLONE else REINSTALL
        return warn("notebook", f"Lab extension @llmops/lab is not built: {reason}", remedy)
    seen = ", ".join(f"{part} {installed(part)}" for part in parts)
    return ok("notebook", f"{seen}, Lab extension @llmops/lab {package.get('version', '')}")
