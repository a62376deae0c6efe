"""Runs a credential plug-in, the `exec` section of a kubeconfig's user, for a limited time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from llmops_kernel.providers.kuberay.resource.objects import one_line

LIMIT_ENV_VAR: Final = "LLMOPS_CREDENTIALS_TIMEOUT_S"
_LIMIT_S: Final = 30.0
_MAX_TEXT: Final = 500
_NO_SUBCOMMAND: Final = 'for "kubectl"'
"""Part of kubectl's complaint about a plug-in of its own that it does not find."""
_INSTALL: Final = {
    "gke-gcloud-auth-plugin": "`gcloud components install gke-gcloud-auth-plugin`",
    "kubelogin": "`az aks install-cli`",
    "aws": "install the AWS CLI (`pip install awscli`, or the package of your system)",
}
"""Install hints for a kubeconfig without `installHint`."""
T = TypeVar("T")


class PluginError(Exception):
    """Reason why there are no credentials; continues `The credential plug-in NAME ...`."""


class PluginTimeout(PluginError):
    """The plug-in was stopped because it did not answer."""


class PluginMissing(PluginError):
    """The plug-in could not be started; `remedy` says how to install it."""

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True)
class Plugin:
    """An `exec` section, as the official client's ExecProvider wants it."""

    section: Any
    folder: str
    """The folder of the kubeconfig: relative commands start there."""
    cluster: Any

    @property
    def command(self) -> str:
        return str(self.section["command"])

    @property
    def name(self) -> str:
        """Return what people call it: of `kubectl oidc-login` both words, as kubectl runs it."""
        name = Path(self.command).name
        arguments = self.section.safe_get("args") or ()
        return f"{name} {arguments[0]}" if name == "kubectl" and arguments else name

    def run(self) -> dict[str, Any]:
        """Return the `status` of its answer. Raises PluginError.

        It gets no input: a server has nobody who could answer, and its terminal belongs to
        another program.
        """
        from kubernetes.config.exec_provider import ExecProvider

        provider = ExecProvider(self.section, self.folder, self.cluster)
        spec: dict[str, Any] = {"interactive": False}
        if provider.cluster:
            spec["cluster"] = _cluster_info(dict(provider.cluster.value))
        info = {"apiVersion": provider.api_version, "kind": "ExecCredential", "spec": spec}
        env = {**provider.env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            output = _output(provider.args, cwd=provider.cwd, env=env)
        except OSError as error:
            raise self._not_started(error) from None
        except PluginError as error:
            if _NO_SUBCOMMAND not in str(error):
                raise
            raise PluginMissing(f"is not installed: {error}", remedy=self._install()) from None
        return _status(output, api_version=provider.api_version)

    def _not_started(self, error: OSError) -> PluginMissing:
        command = one_line(self.command)
        if os.path.dirname(self.command):
            path = os.path.join(self.folder, self.command)
            is_there = os.path.exists(path)
            failure = f"cannot be started: {path}: {error.strerror}"
            message = failure if is_there else f"is not installed: there is no file {path}"
        elif isinstance(error, FileNotFoundError):
            message = f"is not installed: there is no command `{command}` on PATH"
        else:
            message = f"cannot be started: `{command}`: {error.strerror}"
        return PluginMissing(message, remedy=self._install())

    def _install(self) -> str:
        """Return how to install it: the kubeconfig's own words, as kubectl prints them."""
        hint = one_line(str(self.section.safe_get("installHint") or ""), limit=_MAX_TEXT)
        hint_text = f"its kubeconfig says: {hint}" if hint else _INSTALL.get(self.name, "")
        if not hint_text and self.name.startswith("kubectl "):
            hint_text = f"`kubectl krew install {self.name.removeprefix('kubectl ')}`"
        hint_text = (
            hint_text or f"install {self.name}, or correct `command` of the user in the kubeconfig"
        )
        return (
            f"{hint_text}; if your shell finds it, start this program (or the Jupyter server) from"
            " there: its PATH may be another"
        )


def limit_s() -> float:
    """Return how long credentials may take: the environment's seconds, else half a minute."""
    try:
        return max(0.1, float(os.environ[LIMIT_ENV_VAR]))
    except (KeyError, ValueError):
        return _LIMIT_S


def within_limit(work: Callable[[], T]) -> T:
    """Return what `work` returns. Raises PluginTimeout when it takes too long.

    For code of others that waits for a network without a limit: its thread stays behind.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="llmops-credentials")
    thread.start()
    seconds = limit_s()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise PluginTimeout(f"has not answered for {seconds:g} s")
    return results[0]


def _output(arguments: list[str], *, cwd: str | None, env: dict[str, str]) -> str:
    seconds = limit_s()
    # Files and not pipes: a process that the plug-in has started may keep a pipe open for ever.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=complaints,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise PluginTimeout(
                f"has not answered for {seconds:g} s and was ended{_quoted(complaints)}"
            ) from None
        finally:
            _end(process)
        if code:
            raise PluginError(f"failed: exit status {code}{_quoted(complaints)}")
        out.seek(0)
        return out.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of it, with the processes that it has started and not detached."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _quoted(file: Any) -> str:
    file.seek(0)
    text = file.read().decode(errors="replace").strip()[-_MAX_TEXT:]
    return f": {text}" if text else ""


def _cluster_info(cluster: dict[str, Any]) -> dict[str, Any]:
    for extension in cluster.get("extensions") or []:
        if extension["name"] == "client.authentication.k8s.io/exec":
            return {**cluster, "config": extension["extension"]}
    return cluster


def _status(output: str, *, api_version: str) -> dict[str, Any]:
    try:
        answer = json.loads(output)
        status, version = answer["status"], answer["apiVersion"]
    except (ValueError, KeyError, TypeError) as error:
        raise PluginError(f"returned no ExecCredential ({type(error).__name__}: {error})") from None
    if version != api_version:
        raise PluginError(f"answered in version {version}; the kubeconfig names {api_version}")
    if not isinstance(status, dict):
        raise PluginError("returned neither a token nor a certificate")
    return status


@dataclass
class Patience:
    """Lets those who waited for a plug-in share its failure: each would wait as long again."""

    pause_s: float = 5.0
    """After a plug-in that did not answer, nobody starts it again for so long."""
    _error: Exception | None = None
    _failed_s: float = 0.0
    _is_timeout: bool = False

    def check(self, asked_s: float) -> None:
        """Raise the last failure if it came after the caller, who came at `asked_s`."""
        if self._error is None:
            return
        is_new = self._is_timeout and time.monotonic() - self._failed_s < self.pause_s
        if is_new or self._failed_s > asked_s:
            raise self._error

    def failed(self, error: Exception, *, is_timeout: bool) -> Exception:
        self._error, self._failed_s = error, time.monotonic()
        self._is_timeout = is_timeout
        return error

    def worked(self) -> None:
        self._error = None
