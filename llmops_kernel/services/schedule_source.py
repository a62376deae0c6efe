"""Makes and changes schedules: what they run and from which commit, here or as a CronJob."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import yaml

from llmops_kernel.errors import ClusterStateError, ConfigError, ScheduleError
from llmops_kernel.providers.capabilities import SupportsTimedJobs, TimedJob
from llmops_kernel.services import clusters, submission
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.schedules import (
    MAX_NAME,
    NAME,
    NOTEBOOK,
    Schedule,
    ScheduleStore,
    check_times,
    short,
)

_GIT_S = 120.0


def new_schedule(
    backend: Backend,
    name: str,
    file: Path,
    *,
    cron: str,
    timezone: str = "UTC",
    branch: str | None = None,
    revision: str | None = None,
    cluster: str = "local",
    changes: Sequence[str] = (),
    workspace: Path | None = None,
    only_committed: bool = False,
    now_s: float | None = None,
) -> tuple[Schedule, str]:
    """Check and write a schedule; return it, and a warning about changes that are not committed.

    With `only_committed` they are an error. Without `branch` and `revision` it follows the branch
    that the repository is on. Raises ConfigError, ScheduleError.
    """
    if cron:
        check_times(cron, timezone)
    file = file.resolve()
    repository = Path(_git(file.parent, "rev-parse", "--show-toplevel"))
    if branch is None and revision is None:
        with suppress(ScheduleError):
            branch = _git(repository, "symbolic-ref", "--short", "HEAD")
    template = None
    with suppress(ConfigError):  # A cluster that is there needs none.
        _, template = clusters.read_template(cluster)
    now_s = time.time() if now_s is None else now_s
    schedule = Schedule(
        name=_checked_name(name),
        repository=str(repository),
        path=_inside(repository, file),
        workspace=_inside(repository, workspace) if workspace else None,
        cluster=cluster,
        template=str(template.resolve()) if template else None,
        cron=cron,
        timezone=timezone,
        changes=tuple(changes),
        branch=branch,
        revision=revision if branch is None else None,
        created_s=now_s,
        seen_s=now_s,
    )
    schedule, warning = _checked(schedule, only_committed=only_committed)
    ScheduleStore(backend.store).add(schedule)
    return schedule, warning


def _checked_name(name: str) -> str:
    if len(name) <= MAX_NAME and re.fullmatch(NAME, name):
        return name
    raise ConfigError(
        f"{name!r} cannot be the name of a schedule",
        remedy=f"lower-case letters, digits and single hyphens, {MAX_NAME} characters at most",
    )


def _checked(schedule: Schedule, *, only_committed: bool) -> tuple[Schedule, str]:
    """Return it with its commit where it is pinned, and a warning. Mistakes are told now."""
    if schedule.cron:
        check_times(schedule.cron, schedule.timezone)
    commit, repository = check_source(schedule), Path(schedule.repository)
    if schedule.branch is None:
        schedule = schedule.model_copy(update={"revision": commit})
    if schedule.is_notebook:
        parameters_of(schedule)
    else:
        folder = repository / schedule.workspace if schedule.workspace else None
        file = repository / schedule.path
        submission.from_words(file, schedule.changes, workspace=folder, settings={})
    if not _git(repository, "status", "--porcelain", "--", schedule.path):
        return schedule, ""
    warning = f"{schedule.path} has changes that are not committed"
    if only_committed:
        raise ScheduleError(warning, remedy="commit them: a schedule runs what is committed")
    return schedule, f"{warning}: the schedule runs {short(commit)}"


def _inside(repository: Path, path: Path) -> str:
    if not path.resolve().is_relative_to(repository):
        raise ScheduleError(
            f"{path} is not in the repository {repository}",
            remedy="a schedule checks out one repository, which has all that it needs",
        )
    return str(path.resolve().relative_to(repository))


def follow(backend: Backend, name: str, *, branch: str) -> Schedule:
    """Let a schedule run the newest commit of a branch. Raises ScheduleError."""
    return _flip(backend, name, branch=branch, revision=None)


def pin(backend: Backend, name: str, *, revision: str) -> Schedule:
    """Let a schedule stay at a commit, named by any word of git's. Raises ScheduleError."""
    return _flip(backend, name, branch=None, revision=revision)


def _flip(backend: Backend, name: str, *, branch: str | None, revision: str | None) -> Schedule:
    store = ScheduleStore(backend.store)
    flipped = store.load(name).model_copy(update={"branch": branch, "revision": revision})
    commit = check_source(flipped)
    return store.update(name, branch=branch, revision=None if branch else commit)


def set_paused(backend: Backend, name: str, paused: bool, *, now_s: float) -> Schedule:
    """Pause or resume a schedule. What came due while it was paused is not made up for."""

    def changed(schedule: Schedule) -> Schedule:
        seen_s = max(schedule.seen_s, now_s) if schedule.paused else schedule.seen_s
        return schedule.model_copy(update={"paused": paused, "seen_s": seen_s})

    return ScheduleStore(backend.store).change(name, changed)


# --- The revision: which commit, and its files ---


def check_source(schedule: Schedule) -> str:
    """Return the commit that would run now. Raises ScheduleError where its file is not in it."""
    commit = _commit(schedule)
    try:
        _git(schedule.repository, "cat-file", "-e", f"{commit}:{schedule.path}")
    except ScheduleError:
        raise ScheduleError(
            f"{schedule.path} is not in {schedule.source} ({short(commit)})",
            remedy="commit it, or choose a branch or revision that has it",
        ) from None
    return commit


def _commit(schedule: Schedule) -> str:
    name = schedule.revision or ""
    if schedule.branch is not None:
        name = f"refs/heads/{schedule.branch}"
        remote, branch = _remote_of(schedule)
        if remote:
            name = f"refs/remotes/{schedule.branch}"
            _git(schedule.repository, "fetch", "--quiet", remote, f"+refs/heads/{branch}:{name}")
    try:
        return _git(schedule.repository, "rev-parse", "--verify", "--end-of-options", f"{name}^0")
    except ScheduleError:
        raise ScheduleError(
            f"There is no {schedule.source} in {schedule.repository}",
            remedy="`git branch --all` and `git log --oneline` there list what is",
        ) from None


def _remote_of(schedule: Schedule) -> tuple[str, str]:
    """Return remote and branch of what it follows: empty strings for neither."""
    remote, _, branch = (schedule.branch or "").partition("/")
    if branch and remote in _git(schedule.repository, "remote").split():
        return remote, branch
    return "", schedule.branch or ""


def check_out(schedule: Schedule, commit: str, folder: Path) -> None:
    """Put the files of a commit into a new folder; the user's own working tree is not touched.

    A clone that shares the repository's objects: run records read the revision from it.
    """
    template = ("--template=",)  # No hooks of the user's.
    _git(
        *(schedule.repository, "clone", "--quiet", "--shared", "--no-checkout", *template),
        *("--", schedule.repository, str(folder)),
    )
    _, branch = _remote_of(schedule)
    how = ("-B", branch) if branch else ("--detach",)
    _git(folder, "checkout", "--quiet", *how, commit)


def _git(folder: Path | str, *arguments: str) -> str:
    """Return what a git command prints. Raises ScheduleError with its last line."""
    remedy = "a schedule runs what is committed: `git init`, `git add` and `git commit` it first"
    try:
        done = subprocess.run(
            ["git", "-c", "core.hooksPath=/dev/null", *arguments],
            cwd=folder,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ScheduleError(f"git {arguments[0]} in {folder}: {error}", remedy=remedy) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ScheduleError(f"git {arguments[0]} in {folder}: {lines[-1]}", remedy=remedy)
    return done.stdout.strip()


# --- Without this machine ---


def render(
    backend: Backend,
    name: str,
    *,
    cluster: str | None = None,
    url: str | None = None,
    image: str | None = None,
    git_secret: str | None = None,
    claim: str | None = None,
    namespace: str | None = None,
) -> str:
    """Return a manifest that runs a schedule on its cluster's platform.

    Asks no server. Raises ScheduleError, ConfigError, and ClusterStateError for a provider that
    has none.
    """
    schedule = ScheduleStore(backend.store).load(name)
    if not schedule.cron or set("L#") & set(schedule.cron.upper().replace("JUL", "")):
        raise ConfigError(
            f"Kubernetes knows no {schedule.cron!r} as the times of a CronJob",
            remedy="five fields without L and #",
        )
    template, _ = clusters.read_template(cluster or schedule.template or schedule.cluster)
    provider = backend.provider_for(template)
    if not isinstance(provider, SupportsTimedJobs):
        raise ClusterStateError(
            f"Provider {provider.name} has no timetable of its own",
            remedy=f"`llmops schedule run` fires {name} here; for Kubernetes use a template of"
            " provider kuberay",
        )
    _, branch = _remote_of(schedule)
    job = TimedJob(
        name=name,
        cron=schedule.cron,
        timezone=schedule.timezone,
        suspended=schedule.paused,
        repository=_url_for_pods(url or _git(schedule.repository, "remote", "get-url", "origin")),
        branch=branch or None,
        revision=schedule.revision,
        command=_command(schedule, template.name),
        image=image,
        git_secret=git_secret,
        claim=claim,
    )
    return provider.timed_job(template, job, namespace=namespace)


def _url_for_pods(url: str) -> str:
    parts = urlsplit(url)
    if parts.password:
        raise ConfigError(
            "The repository's URL has a password, which would stand in the manifest",
            remedy="name it without with --url, and its credentials with --git-secret",
        )
    if Path(url).exists() or parts.scheme == "file":
        raise ConfigError(
            f"Pods cannot clone the repository from {url}", remedy="name its URL with --url"
        )
    return url


def _command(schedule: Schedule, cluster: str) -> tuple[str, ...]:
    """Return the command of a pod. What is the user's has no `$(NAME)` that Kubernetes replaces."""

    def kept(text: str) -> str:
        return text.replace("$(", "$$(")

    file = PurePosixPath(TimedJob.CODE, schedule.path)
    if schedule.is_notebook:
        output = f"{TimedJob.HOME}/$(POD_NAME){NOTEBOOK}"
        values = yaml.safe_dump(parameters_of(schedule))
        where = ("--cwd", kept(str(file.parent)), "--parameters_yaml", kept(values))
        return ("python", "-m", "papermill", kept(str(file)), output, *where)
    folder = PurePosixPath(TimedJob.CODE, schedule.workspace or file.parent)
    options = ("--cluster", cluster, "--group", schedule.name, "--workspace", kept(str(folder)))
    changes = map(kept, schedule.changes)
    return ("llmops", "submit", "--follow", *options, kept(str(file)), *changes)


def parameters_of(schedule: Schedule) -> dict[str, Any]:
    """Return a notebook's parameters; their values are YAML. Raises ScheduleError."""
    parameters = {}
    for word in schedule.changes:
        name, is_value, text = word.partition("=")
        if not name.isidentifier() or not is_value:
            raise ScheduleError(
                f"{word!r} is no parameter of a notebook", remedy="write NAME=VALUE"
            )
        try:
            parameters[name] = yaml.safe_load(text)
        except yaml.YAMLError:
            parameters[name] = text
    return parameters
