"""Packages of Python that a run needs besides the environment of the cluster.

Each node installs them once, into a folder of the cluster that is named after their content. It
comes behind the environment on `sys.path`, so nothing is replaced; where a package needs another
version of what is installed, that version is in the folder too, which then comes first.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
import os
import platform
import re
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from llmops_kernel.driver.ray_job import add_variables, restart_cold
from llmops_kernel.driver.report import BEGAN_ENV_VAR, DriverReport, failure_of
from llmops_kernel.driver.storage import open_journal, ray_logs
from llmops_kernel.errors import MissingDependencyError
from llmops_kernel.metrics.events import EndEvent, PhaseEvent
from llmops_kernel.store.package.assets import link_assets
from llmops_kernel.store.record import RunSpec
from llmops_kernel.warm.for_jobs import looked_for_by_server, start_report

IN_WORKER = f"{__name__}.in_worker"
"""Called by Ray in each of a job's workers before their first task."""
REQUEST_ENV_VAR = "LLMOPS_PACKAGES"
HOOK_ENV_VAR = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
"""Ray's `ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR`, which is read in each worker."""
_MARK = ".llmops-packages.json"
_LAST_LINES = 12
_POLL_S = 0.1
_NEVER_REPLACED = ("ray", "llmops-kernel")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")
_OPTION = re.compile(
    r"\s*(-i|-f|-e|-r|-c|--(?:index-url|extra-index-url|find-links|requirement|constraint|editable))"
    r"[\s=]+(.+)"
)
_VERSION = re.compile(r"[0-9][0-9A-Za-z.!+-]*")
_CONFLICT = re.compile(r"ResolutionImpossible|conflicting dependencies|Cannot install")


@dataclass(frozen=True, kw_only=True)
class PackageRequest:
    """The packages that a run's config asks for."""

    packages: tuple[str, ...] = ()
    requirements: str = ""
    """A file, relative to the workspace."""

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> PackageRequest | None:
        """Return what the config names; None for no packages."""
        packages = tuple(config.get("packages") or ())
        requirements = str(config.get("requirements") or "")
        is_named = bool(packages or requirements)
        return cls(packages=packages, requirements=requirements) if is_named else None

    @property
    def text(self) -> str:
        """Return `trl==1.16, requirements.txt`, without passwords."""
        return without_secrets(", ".join(filter(None, [*self.packages, self.requirements])))

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> PackageRequest:
        values = json.loads(text)
        return cls(packages=tuple(values["packages"]), requirements=values["requirements"])


@dataclass(frozen=True, kw_only=True)
class Packages:
    """A folder with the packages of a run."""

    folder: Path
    installed: tuple[str, ...] = ()
    """`trl 1.16.0`, each package in the folder."""
    replaces: tuple[str, ...] = ()
    """`transformers 5.23.0 by 4.57.1`, for each that the environment has in another version."""
    is_new: bool = False

    @property
    def is_first(self) -> bool:
        """Return whether the folder comes before the environment on sys.path."""
        return bool(self.replaces)

    def modules(self) -> set[str]:
        """Return the names of the top-level modules in it."""
        names = {path.name.partition(".")[0] for path in self.folder.iterdir()}
        return {name for name in names if name.isidentifier() and not name.startswith("__")}


class Stopped(Exception):
    """The run was stopped while its packages were installed."""


def install(
    request: PackageRequest,
    root: Path,
    *,
    workspace: Path,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Packages:
    """Install the requested packages below `root`, unless it is done; another process may be at it.

    Raises MissingDependencyError with pip's last lines, and Stopped.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    have = _environment()
    folder = root / _key(request, workspace, have)
    if packages := _read_packages(folder):
        return packages
    with _locked(folder.with_suffix(".lock"), is_stopped):
        if packages := _read_packages(folder):
            return packages
        with tempfile.TemporaryDirectory(dir=root, prefix="part-") as name:
            return _Installation(request, workspace, Path(name), have, is_stopped).into(folder)


def use(packages: Packages) -> None:
    """Make the packages importable in this process, and in the ones that it starts."""
    folder = str(packages.folder)
    site.addsitedir(folder)  # Appends it, and follows the .pth files of packages in it.
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if packages.is_first:
        sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]
        entries = [folder, *entries]
    else:
        entries = [*entries, folder]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(entries))
    importlib.invalidate_caches()


def prepare(spec: RunSpec) -> None:
    """Install the packages of this run's config and use them, before the driver does anything.

    Where a fork cannot have them this driver starts once more as a plain interpreter; where they
    cannot be installed the run ends, and this process with it.
    """
    request = PackageRequest.of_config(spec.config)
    if request is None:
        return
    workspace = Path.cwd()
    link_assets(workspace)  # A requirements file may name wheels of the workspace.
    if os.environ.get(REQUEST_ENV_VAR) == request.encode():  # This is the second start.
        use(install(request, cluster_folder(workspace), workspace=workspace))
        return
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        packages = _journaled(request, spec, workspace, is_stopped=stop.is_set)
    finally:
        signal.signal(signal.SIGTERM, before)
    os.environ[BEGAN_ENV_VAR] = str(time.time())
    variables = {REQUEST_ENV_VAR: request.encode(), HOOK_ENV_VAR: IN_WORKER}
    if start_report()[0] and (why := why_cold(packages, looked_for=looked_for_by_server())):
        if packages.is_first:
            variables["PYTHONPATH"] = str(packages.folder)
        restart_cold(spec, why, variables=variables)
    add_variables(variables)
    use(packages)


def why_cold(packages: Packages, *, looked_for: Collection[str]) -> str:
    """Return why a forked process cannot have the packages; empty if it can.

    `looked_for`: modules that libraries have looked for and not found when they were loaded.
    """
    brought = packages.modules()
    loaded = sorted(brought & {name.partition(".")[0] for name in sys.modules})
    if packages.is_first and loaded:
        names = ", ".join(packages.replaces or loaded)
        return f"the run's packages replace what is loaded ({names})"
    if missed := sorted(brought & set(looked_for)):
        return f"libraries that are loaded have looked for {', '.join(missed)} already"
    return ""


def _journaled(
    request: PackageRequest, spec: RunSpec, workspace: Path, *, is_stopped: Callable[[], bool]
) -> Packages:
    """Install them as a phase of the run; a failure or a stop is its end."""
    journal = open_journal(spec, "packages", logs=ray_logs(workspace))
    journal.emit(PhaseEvent(name="packages", state="begin", detail=request.text))
    try:
        root = cluster_folder(workspace)
        packages = install(request, root, workspace=workspace, is_stopped=is_stopped)
    except (MissingDependencyError, Stopped, OSError) as error:
        report = DriverReport(spec, logs=ray_logs(workspace))
        report.phases_so_far()
        if isinstance(error, Stopped):
            end = EndEvent(state="STOPPED", message="Stopped while its packages were installed.")
        else:
            remedy = "`llmops retry` tries it again"
            end = report.failed([failure_of(error, remedy=remedy)])
        sys.exit(report.end(end))
    journal.emit(PhaseEvent(name="packages", state="end", detail=_about(packages)))
    journal.close()
    return packages


def _about(packages: Packages) -> str:
    names = ", ".join(packages.installed) or "all are in the environment"
    replaced = f"; replaces {', '.join(packages.replaces)}" if packages.replaces else ""
    return f"{names}{'' if packages.is_new else ' (already there)'}{replaced}"


def in_worker() -> None:
    """Do the same in a worker of Ray, on whichever node it is."""
    text = os.environ.get(REQUEST_ENV_VAR)
    if text:
        workspace = Path.cwd()
        link_assets(workspace)
        use(install(PackageRequest.decode(text), cluster_folder(workspace), workspace=workspace))


def cluster_folder(workspace: Path) -> Path:
    """Return where packages are kept on this node; it goes with the cluster's other files."""
    logs = ray_logs(workspace)
    if logs is not None:
        return logs.parents[1] / "packages"
    return Path(tempfile.gettempdir()) / f"llmops-packages-{os.getuid()}"


def without_secrets(text: str) -> str:
    """Return the text with `***` for user names and passwords in URLs."""
    return _CREDENTIALS.sub("***@", text)


@dataclass(frozen=True)
class _Installation:
    """A run of pip: it finds the missing packages, and installs exactly those into a folder."""

    request: PackageRequest
    workspace: Path
    scratch: Path
    have: Mapping[str, str]
    is_stopped: Callable[[], bool]

    def into(self, folder: Path) -> Packages:
        items, replaces = self._missing()
        if fixed := [text for text in replaces if text.split()[0] in _NEVER_REPLACED]:
            raise MissingDependencyError(
                f"{self.request.text} would replace {fixed[0]}, with which the cluster runs.",
                remedy="choose versions that work with it",
            )
        target = self.scratch / "packages"
        target.mkdir()
        if items:
            self._install(items, target)
        names = tuple(f"{item['metadata']['name']} {item['metadata']['version']}" for item in items)
        (target / _MARK).write_text(json.dumps({"installed": names, "replaces": replaces}))
        shutil.rmtree(folder, ignore_errors=True)
        target.rename(folder)
        return Packages(folder=folder, installed=names, replaces=tuple(replaces), is_new=True)

    def _missing(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the missing packages as pip reports them, and those that replace a version."""
        constraints = self.scratch / "constraints.txt"
        fixed = (f"{name}=={version}" for name, version in self.have.items())
        constraints.write_text("\n".join(fixed))
        try:
            return self._resolved("--constraint", str(constraints)), []
        except _PipError as error:
            if not _CONFLICT.search(error.output):
                raise self._failure(error) from None
        try:
            items = self._resolved()
        except _PipError as error:
            raise self._failure(error) from None
        replaces = []
        for item in items:
            name, version = item["metadata"]["name"], item["metadata"]["version"]
            if (old := self.have.get(_canonical(name))) is not None:
                replaces.append(f"{_canonical(name)} {old} by {version}")
        return items, replaces

    def _resolved(self, *options: str) -> list[dict[str, Any]]:
        report = self.scratch / "report.json"
        words = ["--dry-run", "--report", str(report), *options, *self._words()]
        self._pip(*words)
        items: list[dict[str, Any]] = json.loads(report.read_text())["install"]
        return items

    def _words(self) -> list[str]:
        file = self.request.requirements
        return [*(["--requirement", file] if file else []), "--", *self.request.packages]

    def _install(self, items: list[dict[str, Any]], target: Path) -> None:
        requirements = self.request.requirements
        options = _index_options(self.workspace / requirements) if requirements else ()
        file = self.scratch / "install.txt"
        file.write_text("\n".join([*options, *map(_exact, items)]))
        try:
            self._pip("--no-deps", "--target", str(target), "--requirement", str(file))
        except _PipError as error:
            raise self._failure(error) from None

    def _pip(self, *words: str) -> None:
        """Run `pip install` in the workspace. Raises _PipError, Stopped."""
        options = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        line = [*_pip_command(), "install", *options, *words]
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        log = self.scratch / "pip.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                line,
                cwd=self.workspace,
                # An environment that belongs to the system's packages is only read here.
                env=env | {"PIP_BREAK_SYSTEM_PACKAGES": "1"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            try:
                while process.poll() is None:
                    if self.is_stopped():
                        raise Stopped
                    time.sleep(_POLL_S)
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        if process.returncode:
            raise _PipError(without_secrets(log.read_text(errors="replace")))

    def _failure(self, error: _PipError) -> MissingDependencyError:
        lines = [line for line in error.output.splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        first = errors[-1] if errors else (lines[-1] if lines else "it printed nothing")
        print("\n".join(["pip's last lines:", *lines[-_LAST_LINES:]]), file=sys.stderr, flush=True)
        return MissingDependencyError(
            f"pip could not install {self.request.text}: {first}",
            remedy="check name and version, and that the nodes reach the package index"
            " (PIP_INDEX_URL in the cluster's environment names another one); `llmops logs` has"
            " pip's last lines",
        )


class _PipError(Exception):
    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


def _pip_command() -> list[str]:
    """Return how pip is run: an environment without it has a copy in the standard library."""
    # `util.find_spec` asks setuptools too, which then removes `distutils` from this process.
    if PathFinder.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if PathFinder.find_spec("ensurepip") is not None:
        import ensurepip

        wheels = sorted(Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"))
        if wheels:
            return [sys.executable, f"{wheels[-1]}/pip"]
    raise MissingDependencyError(
        f"The environment of the cluster has no pip, which installs packages ({sys.prefix})",
        remedy="install pip in it (`python -m ensurepip`), or the packages themselves",
    )


def _exact(item: Mapping[str, Any]) -> str:
    """Return one reported package as a line of a requirements file."""
    about = item["metadata"]
    info = item["download_info"]
    if item.get("is_direct"):
        vcs = info.get("vcs_info")
        if vcs:
            return f"{about['name']} @ {vcs['vcs']}+{info['url']}@{vcs['commit_id']}"
        return f"{about['name']} @ {info['url']}"
    return f"{about['name']}=={about['version']}"


def _index_options(file: Path) -> Iterator[str]:
    """Yield the lines of a requirements file that say where packages come from."""
    for line in _lines(file):
        if re.match(
            r"\s*(-i|-f|--index-url|--extra-index-url|--find-links|--no-index|--pre|"
            r"--trusted-host|--prefer-binary|--no-binary|--only-binary)\b",
            line,
        ):
            yield line.strip()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError as error:
        raise MissingDependencyError(
            f"The requirements file {file.name} cannot be read: {error.strerror}",
            remedy="name a file of the workspace in `requirements`; one that .gitignore names"
            " does not travel",
        ) from None


def _key(request: PackageRequest, workspace: Path, have: Mapping[str, str]) -> str:
    """Return a name of the content: the lines, the interpreter, the platform, the environment.

    Also what is in a package of the workspace: its name and version stay while it is worked on.
    """
    file = workspace / request.requirements if request.requirements else None
    lines = sorted([*request.packages, *(_contents(file) if file else ())])
    parts = [
        *lines,
        *(digest for line in lines for digest in _digests(line, workspace)),
        sys.version,
        platform.platform(),
        sys.prefix,
        *(f"{name}=={version}" for name, version in sorted(have.items())),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _contents(file: Path, depth: int = 5) -> Iterator[str]:
    """Yield the lines of a requirements file and of those that it includes."""
    for line in _lines(file):
        text = line.partition(" #")[0].strip()
        if text and not text.startswith("#"):
            yield text
        option = _OPTION.match(text)
        if option and option[1] in ("-r", "-c", "--requirement", "--constraint") and depth:
            name = option[2].strip().removeprefix("file://")
            if "://" not in name:  # What is behind another URL only pip reads.
                yield from _contents(file.parent / name, depth - 1)


def _digests(line: str, workspace: Path) -> Iterator[str]:
    """Yield the contents of the wheel or the folder that a line names, as pip recognises one."""
    name = re.sub(r"^(-e|--editable)[\s=]+", "", line).partition(";")[0].rpartition("@ ")[2]
    name = name.strip().removeprefix("file://").partition("[")[0]
    path = workspace / name
    if os.path.isfile(path):  # Which is no error of a line that is too long for a name.
        yield hashlib.sha256(path.read_bytes()).hexdigest()
    elif "/" in name and os.path.isdir(path):
        for file in sorted(path.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"{file.relative_to(path)} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _environment() -> dict[str, str]:
    """Return name and version of each package that is installed for this interpreter."""
    # Ray and the run add folders of their own; a constraint must be a version that pip reads.
    paths = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    versions: dict[str, str] = {}
    for distribution in metadata.distributions(path=paths):
        with suppress(KeyError, TypeError, AttributeError):
            if _VERSION.fullmatch(distribution.version):
                versions.setdefault(_canonical(distribution.metadata["Name"]), distribution.version)
    return versions


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _read_packages(folder: Path) -> Packages | None:
    try:
        mark = json.loads((folder / _MARK).read_text())
    except (OSError, ValueError):
        return None
    installed, replaces = tuple(mark["installed"]), tuple(mark["replaces"])
    return Packages(folder=folder, installed=installed, replaces=replaces)


@contextmanager
def _locked(path: Path, is_stopped: Callable[[], bool]) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if is_stopped():
                    raise Stopped from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)
