"""Decides in the server what a request asks for, and why a fork cannot provide it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
import zipimport
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from llmops_kernel.warm.env_reads import EnvReads
from llmops_kernel.warm.loaded_files import LoadedFiles
from llmops_kernel.warm.preload import fingerprint, installed, own_files

# In a job's runtime environment: its processes start cold, and the value is the reason.
REFUSE_ENV_VAR = "LLMOPS_WARM_REFUSE"

# Variables that native code or the interpreter reads when it starts, or that one of these libraries
# builds names of: a fork has the server's values. What Python code reads is recorded instead.
_NATIVE = re.compile(
    r"LD_|GLIBC_|MALLOC_|PYTHON|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|NUMEXPR_|LC_|LANG|HOME$|XDG_"
    r"|HF_|HUGGINGFACE_|TRANSFORMERS_|DATASETS_|TORCH|PYTORCH_|DS_|DEEPSPEED_|CUDA_|ARROW_"
    r"|USE_TORCH|USE_TF|TQDM_|BNB_|GRPC_|RAY_|FSSPEC_"
)
# Of all those, the ones that may differ: applied to the fork by `child`, or read again when used.
_MAY_DIFFER = re.compile(
    r"(?:PYTHONPATH|PYTHONBREAKPOINT|PYTHONUNBUFFERED|OMP_NUM_THREADS|HF_HUB_OFFLINE"
    r"|TORCH_EXTENSIONS_DIR|TORCH_CUDA_ARCH_LIST|TORCH_HOME|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER"
    r"|RAY_JOB_ID|RAY_RAYLET_PID|RAY_LD_PRELOAD_ON_WORKERS|RAY_USAGE_STATS_ENABLED|RAY_ADDRESS"
    r"|RAY_JOB_CONFIG_JSON_ENV_VAR|RAY_CHDIR_TO_TRIAL_DIR|CUDA_LAUNCH_BLOCKING"
    r"|PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF|HF_TOKEN|PATH|PWD|OLDPWD|SHLVL|_|TZ|TMPDIR|TMP"
    r"|TEMP)$"
    # Lower-case names are Ray core's own settings, which it reads again in the child.
    r"|TORCH_NCCL_|RAY_EXPERIMENTAL_NOSET_|RAY_TRAIN_(?!V2_ENABLED)|RAY_[a-z]|RAY_WARN_BLOCKING"
    r"|LLMOPS_"
)
# Read once when a process starts, by its interpreter or C library, not by a library's import.
_AT_START = re.compile(r"LD_|GLIBC_|MALLOC_|PYTHON|LC_|LANG")
# Of these, the ones that are applied when a fork is born, and have no effect afterwards.
_APPLIED_AT_BIRTH = frozenset({"HF_HUB_OFFLINE", "OMP_NUM_THREADS"})
_TRAIN_V2 = ("RAY_TRAIN_V2_ENABLED", "1")  # Read at import, and the default anyway.


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The interpreter that a child becomes."""

    kind: str
    mode: str  # "script", "module" or "command".
    target: str
    arguments: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    first_path: str
    unbuffered: bool
    line: tuple[str, ...]
    """All arguments of the interpreter."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """The properties of the server that a request may differ from."""

    executable: str
    env: dict[str, str]
    path: tuple[str, ...]
    loaded: frozenset[str] = frozenset()
    stack: dict[str, int] = field(default_factory=dict)
    has_ray: bool = False
    thirdparty: tuple[str, ...] = ()
    reads: EnvReads = field(default_factory=EnvReads)
    files: LoadedFiles = field(default_factory=LoadedFiles)

    @classmethod
    def of_this_process(cls) -> Base:
        """Read them before anything of the stack is imported. The process runs as `python -m`."""
        added = set(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
        path = tuple(entry for entry in sys.path[1:] if entry not in added)
        return cls(
            executable=sys.executable,
            env=dict(os.environ),
            path=path,
            stack=fingerprint([*installed(path), *own_files()]),
        )

    def after_preload(self, reads: EnvReads) -> Base:
        """Return it with what was loaded, which a job's own files or variables cannot replace."""
        names = {name.partition(".")[0] for name in sys.modules}
        return Base(
            executable=self.executable,
            env=self.env,
            path=self.path,
            loaded=frozenset(names - {"llmops_kernel", "__main__"}),
            has_ray="ray" in sys.modules,
            thirdparty=tuple(e for e in sys.path if e.endswith("/ray/thirdparty_files")),
            stack=self.stack,
            reads=reads,
            files=LoadedFiles.of_this_process(),
        )


class RefusedError(Exception):
    """Only a new interpreter will do; the text says why."""


def plan(request: dict[str, Any], base: Base) -> Plan:
    """Return the plan for a request. Raises RefusedError."""
    _check_executable(request["executable"], base)
    if fingerprint(list(base.stack)) != base.stack:
        raise RefusedError("the installed packages changed; the fork server is being restarted")
    plan_ = _worker(request, base) if request["kind"] == "worker" else _driver(request)
    if why := plan_.env.get(REFUSE_ENV_VAR):
        raise RefusedError(why)
    if not os.path.isdir(plan_.cwd):
        raise RefusedError(f"no such working directory: {plan_.cwd}")
    _check_env(plan_.env, base)
    _check_shadows(plan_, base)
    if changed := base.files.changed():
        raise RefusedError(f"{changed} changed on disk; the fork server is being restarted")
    return plan_


def _worker(request: dict[str, Any], base: Base) -> Plan:
    """Read the arguments as ray/_private/workers/setup_worker.py does (Ray 2.60)."""
    arguments = []
    context: dict[str, Any] = {}
    language = "PYTHON"
    for argument in request["argv"]:
        name, _, value = argument.partition("=")
        if name == "--serialized-runtime-env-context":
            context = json.loads(value or "{}")
        elif name == "--language":
            language = value
        else:
            arguments.append(argument)
    if language != "PYTHON":
        raise RefusedError(f"a worker in {language.lower()}")
    if context.get("override_worker_entrypoint") or context.get("java_jars"):
        raise RefusedError("a container or a worker entrypoint of the runtime environment")
    env = expanded(request["env"], context.get("env_vars") or {})
    _check_executable(context.get("py_executable") or request["executable"], base)
    cwd = _cwd(context.get("command_prefix") or [], request["cwd"])
    script = arguments[0]
    return Plan(
        kind="worker",
        mode="script",
        target=script,
        arguments=tuple(arguments[1:]),
        env=env,
        cwd=cwd,
        first_path=os.path.dirname(script),
        unbuffered=bool(env.get("PYTHONUNBUFFERED")),
        line=tuple(arguments),
    )


def _cwd(prefix: list[str], cwd: str) -> str:
    """Return the folder of `cd FOLDER &&`, the only accepted shell prefix: others are programs."""
    while prefix:
        if prefix[0] != "cd" or len(prefix) < 3 or prefix[2] != "&&":
            words = " ".join(prefix)[:80]
            raise RefusedError(f"the runtime environment's command prefix ({words})")
        cwd = os.path.join(cwd, shlex.split(prefix[1])[0])
        prefix = prefix[3:]
    return cwd


def _driver(request: dict[str, Any]) -> Plan:
    arguments = list(request["argv"])
    env = dict(request["env"])
    unbuffered = bool(env.get("PYTHONUNBUFFERED"))
    while arguments[:1] == ["-u"]:
        unbuffered = True
        arguments.pop(0)
    if not arguments or arguments[0] == "-" or not request["cwd"]:
        raise RefusedError("python reads its program from standard input")
    first, rest = arguments[0], arguments[1:]
    if first in ("-m", "-c") and rest:
        mode, target, rest = ("module" if first == "-m" else "command"), rest[0], rest[1:]
        first_path = request["cwd"] if mode == "module" else ""
    elif first.startswith("-"):
        raise RefusedError(f"python {first}")
    else:
        mode, target = "script", first
        first_path = os.path.dirname(os.path.realpath(os.path.join(request["cwd"], first)))
        _check_script(os.path.join(request["cwd"], first), first)
    return Plan(
        kind="driver",
        mode=mode,
        target=target,
        arguments=tuple(rest),
        env=env,
        cwd=request["cwd"],
        first_path=first_path,
        unbuffered=unbuffered,
        line=tuple(request["argv"]),
    )


def _check_script(path: str, name: str) -> None:
    if not os.path.isfile(path):
        raise RefusedError(f"python {name}: not a file")
    if name.endswith(".pyc"):
        raise RefusedError(f"python {name}: compiled already")
    with contextlib.suppress(zipimport.ZipImportError):
        zipimport.zipimporter(path)
        raise RefusedError(f"python {name}: an archive")


def python_path(env: dict[str, str], cwd: str) -> list[str]:
    """Return the folders of PYTHONPATH; an empty entry means the working directory."""
    value = env.get("PYTHONPATH")
    return [os.path.join(cwd, entry) for entry in value.split(os.pathsep)] if value else []


def expanded(env: dict[str, str], added: dict[str, str]) -> dict[str, str]:
    """Return `env` with `added`, whose ${NAME} stands for the earlier value: ray's update_envs."""
    result = dict(env)
    for key, value in added.items():
        expanded_value = re.sub(
            r"\$(\w+|\{[^}]*\})",
            lambda match: result.get(_name(match[1]), match[0]),
            value,
            flags=re.ASCII,
        )
        result[key] = re.sub(r"\$\{[A-Z0-9_]+\}", "", expanded_value)
    return result


def _name(text: str) -> str:
    return text[1:-1] if text.startswith("{") else text


def _check_executable(executable: str, base: Base) -> None:
    if executable != base.executable:
        raise RefusedError(f"other interpreter: {executable}")


def _check_env(env: dict[str, str], base: Base) -> None:
    unlike = [
        name
        for name in sorted(env.keys() | base.env.keys())
        if env.get(name) != base.env.get(name)
        and _is_read_at_import(name, base.reads)
        and (base.has_ray or not name.startswith("RAY_"))
        and (name, env.get(name)) != _TRAIN_V2
    ]
    if unlike:
        listed = ", ".join(unlike[:4]) + (", ..." if len(unlike) > 4 else "")
        raise RefusedError(f"environment set for this job is read when libraries load: {listed}")


def _is_read_at_import(name: str, reads: EnvReads) -> bool:
    return not _MAY_DIFFER.match(name) and (bool(_NATIVE.match(name)) or reads.has(name))


def is_too_late(name: str, reads: EnvReads) -> bool:
    """Return whether a variable has no effect in a fork that gets it after its birth."""
    return name in _APPLIED_AT_BIRTH or _is_read_at_import(name, reads)


def is_of_interpreter(name: str) -> bool:
    """Return whether it is read when a process starts: a program's own change comes too late."""
    return bool(_AT_START.match(name))


def _check_shadows(plan_: Plan, base: Base) -> None:
    """Raise RefusedError if a job has its own `transformers/`, for example: it would come first."""
    known_folders = {*base.path, *base.env.get("PYTHONPATH", "").split(os.pathsep)}
    for folder in dict.fromkeys(
        [plan_.first_path or plan_.cwd, *python_path(plan_.env, plan_.cwd)]
    ):
        if folder not in known_folders and (why := shadowed_by(folder, base.loaded)):
            raise RefusedError(why)


def shadowed_by(folder: str, loaded: Collection[str]) -> str:
    """Return which file of a folder that comes first on sys.path has no effect in a fork.

    Empty if none. `loaded`: the names of top-level modules that are loaded.
    """
    try:
        items = sorted(os.scandir(folder), key=lambda item: item.name)
    except OSError:
        return ""
    for item in items:
        stem, _, ending = item.name.partition(".")
        if stem in ("sitecustomize", "usercustomize"):
            return f"{item.name} in {folder} runs when an interpreter starts"
        if stem not in loaded:
            continue
        is_package = not ending and os.path.exists(os.path.join(item.path, "__init__.py"))
        if is_package or ending == "py" or ending.endswith("so"):
            return f"the job brings its own {item.name}, which is loaded already"
    return ""
