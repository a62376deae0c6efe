"""Credential plug-ins that hang, ask and answer wrongly: nobody waits for them without a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from llmops_kernel.providers.kuberay.api import kubeconfig
from llmops_kernel.providers.kuberay.api.credentials import Credentials
from llmops_kernel.providers.kuberay.api.errors import KubeError
from llmops_kernel.providers.kuberay.api.plugin import LIMIT_ENV_VAR, PluginTimeout, within_limit

Open = Callable[..., Credentials]
ANSWER = """echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
 "status": {"token": "'"$token"'"}}'"""


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Credentials of a context whose plug-in is a shell script."""

    def opened(script: str, **section: Any) -> Credentials:
        plugin, config = tmp_path / "tsh", tmp_path / "kubeconfig"
        plugin.write_text(f"#!/bin/sh\n{script}\n")
        plugin.chmod(0o755)
        command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
        command |= section
        named = {"cluster": "far", "user": "far"}
        config.write_text(
            yaml.safe_dump(
                {
                    "current-context": "far",
                    "clusters": [{"name": "far", "cluster": {"server": "https://127.0.0.1:1"}}],
                    "users": [{"name": "far", "user": {"exec": command}}],
                    "contexts": [{"name": "far", "context": named}],
                }
            )
        )
        monkeypatch.setenv("KUBECONFIG", str(config))
        return Credentials(kubeconfig.context_named("far"))

    return opened


def test_all_who_wait_for_one_that_hangs_get_its_error_together(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has started a process that keeps its output open, and says where to sign in."""
    monkeypatch.setenv(LIMIT_ENV_VAR, "2")
    count, pids = tmp_path / "count", tmp_path / "pids"
    credentials = opened(
        f"echo once >> {count}\necho open https://sign.in >&2\n"
        f"sleep 600 &\necho $$ $! > {pids}\nwait"
    )
    errors: list[KubeError] = []
    ready = threading.Barrier(16)

    def ask() -> None:
        ready.wait()
        with pytest.raises(KubeError) as caught:
            credentials.header()
        errors.append(caught.value)

    with ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(ask) for _ in range(16)]:
            done.result(60)
    assert count.read_text() == "once\n"
    messages = {(error.message, error.remedy) for error in errors}
    assert len(messages) == 1
    [(message, remedy)] = messages
    assert message.startswith("The credential plug-in tsh of context far has not answered for 2 s")
    assert "open https://sign.in" in message
    assert "`tsh login`" in remedy
    assert LIMIT_ENV_VAR in remedy
    assert not any(_runs(int(pid)) for pid in pids.read_text().split())


def test_it_gets_no_input(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_ENV_VAR, "60")
    assert opened(f"read token || token=eof\n{ANSWER}").header() == "Bearer eof"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo no session >&2; exit 3", "failed: exit status 3: no session"),
        ("echo hello", "returned no ExecCredential"),
        ("echo '[1]'", "returned no ExecCredential"),
        (ANSWER.replace("k8s.io/v1", "k8s.io/v9"), "answered in version"),
        (ANSWER.replace('"token"', '"other"'), "returned neither a token nor a certificate"),
    ],
)
def test_wrong_answers_are_quoted(opened: Open, script: str, said: str) -> None:
    with pytest.raises(KubeError, match=said) as caught:
        opened(script).header()
    assert "tsh login" in caught.value.remedy


@pytest.mark.parametrize(
    ("section", "said", "remedy"),
    [
        (
            {"command": "corp-login", "installHint": "See the wiki:\n  apt install corp-login"},
            "plug-in corp-login of context far is not installed: there is no command `corp-login`"
            " on PATH",
            "its kubeconfig says: See the wiki: apt install corp-login",
        ),
        (
            {"command": "gke-gcloud-auth-plugin"},
            "there is no command `gke-gcloud-auth-plugin` on PATH",
            "`gcloud components install gke-gcloud-auth-plugin`",
        ),
        (
            {"command": "./bin/own"},
            "plug-in own of context far is not installed: there is no file",
            "install own, or correct `command` of the user in the kubeconfig",
        ),
        ({"command": "./kubeconfig"}, "cannot be started", "install kubeconfig, or correct"),
    ],
    ids=["with a hint", "a known one", "a path", "no program"],
)
def test_a_missing_one_is_named_with_how_to_install_it(
    opened: Open,
    section: dict[str, str],
    said: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not with how to sign in, which needs it."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(KubeError) as caught:
        opened("", **section).header()
    assert said in caught.value.message
    assert caught.value.remedy.startswith(remedy)
    assert "PATH" in caught.value.remedy


def test_a_plugin_of_kubectl_is_called_by_both_words(opened: Open, tmp_path: Path) -> None:
    said = 'echo "error: unknown command \\"oidc-login\\" for \\"kubectl\\"" >&2; exit 1'
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\n{said}\n")
    kubectl.chmod(0o755)
    with pytest.raises(KubeError, match="plug-in kubectl oidc-login of context far") as caught:
        opened("", command=str(kubectl), args=["oidc-login", "get-token"]).header()
    assert "is not installed: failed: exit status 1: error: unknown command" in caught.value.message
    assert caught.value.remedy.startswith("`kubectl krew install oidc-login`")


def test_code_of_others_is_waited_for_no_longer_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(LIMIT_ENV_VAR, "0.2")
    with pytest.raises(PluginTimeout, match=r"has not answered for 0\.2 s"):
        within_limit(threading.Event().wait)
    assert within_limit(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within_limit(lambda: 1 / 0)


def _runs(pid: int) -> bool:
    deadline_s = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline_s:
            return True
        time.sleep(0.05)
    return False
