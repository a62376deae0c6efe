"""The credentials of one kubeconfig context: read, used for each request, renewed."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from llmops_kernel.errors import MissingDependencyError
from llmops_kernel.providers.kuberay.api import kubeconfig
from llmops_kernel.providers.kuberay.api.errors import KubeError, KubeUnreachable
from llmops_kernel.providers.kuberay.api.paths import IN_CLUSTER, with_scope
from llmops_kernel.providers.kuberay.api.plugin import (
    LIMIT_ENV_VAR,
    Patience,
    Plugin,
    PluginError,
    PluginMissing,
    PluginTimeout,
    within_limit,
)

if TYPE_CHECKING:
    from kubernetes.client import Configuration

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
# Not asyncio's own threads: those also look up host names, for the whole Jupyter server.
_WAITING = ThreadPoolExecutor(8, thread_name_prefix="llmops-credentials")
# An API server that repeats 401 must not start a plug-in for each request.
_RENEWAL_PAUSE_S: Final = 5.0
_EXEC_SKEW_S: Final = 60.0
_SIGN_IN: Final = {
    "gke-gcloud-auth-plugin": "gcloud auth login",
    "gcloud": "gcloud auth login",
    "aws": "aws sso login",
    "aws-iam-authenticator": "aws sso login",
    "kubelogin": "az login",
    "oc": "oc login",
    "tsh": "tsh login",
}


class Credentials:
    """Thread-safe.

    Also has the server's address and certificates, which come from the same file.
    """

    def __init__(self, context: kubeconfig.Context) -> None:
        self.context = context
        self._lock = threading.Lock()
        self._renewed_s = 0.0
        self._patience = Patience()
        self._since_s: float | None = None
        self._plugin: Plugin | None = None
        self._loaded: Configuration = self._load()
        self._token: str | None = None
        self._token_ends_s: float | None = None
        self._ssl = ssl_context(self._loaded)
        self._certificate = _certificate(self._loaded)

    def __repr__(self) -> str:
        return f"Credentials({self.context.name!r})"

    @property
    def server(self) -> str:
        return str(self._loaded.host).rstrip("/")

    @property
    def proxy(self) -> str | None:
        """Return the HTTP proxy for the server: the kubeconfig's, else the environment's."""
        return _proxy_to(self.server, self._loaded.proxy or None)

    @property
    def server_name(self) -> str | None:
        """Return the name in the server's certificate, if it differs from that of its address."""
        return getattr(self._loaded, "tls_server_name", None) or None

    @property
    def ssl(self) -> ssl.SSLContext:
        return self._ssl

    @property
    def sign_in(self) -> str:
        """Return the command to run when the server rejects the credentials."""
        if self.context.name == IN_CLUSTER:
            return "the pod's service account has no valid token: check `serviceAccountName`"
        command = self._plugin_name()
        check = with_scope(
            "`kubectl get rayclusters` shows whether it works", context=self.context.name
        )
        if command:
            return f"`{_SIGN_IN.get(command, f'{command} ...')}` signs you in again; then {check}"
        return f"sign in again (for example with `oc login` or a new kubeconfig); then {check}"

    def header(self) -> str | None:
        """Return the `Authorization` header; None if a client certificate is enough.

        Raises KubeError.
        """
        asked_s = time.monotonic()
        with self._lock:
            self._patience.check(asked_s)
            return self._header()

    def waits_for(self) -> KubeUnreachable | None:
        """Return what to report while the plug-in is being waited for, else None."""
        since_s = self._since_s
        if since_s is None:
            return None
        waited_s = time.monotonic() - since_s
        return KubeUnreachable(
            f"{self._described()} has not answered for {waited_s:.0f} s", remedy=self.sign_in
        )

    def renew(self, rejected: str | None) -> str | None:
        """Read everything again after a 401, unless another thread has done so meanwhile."""
        asked_s = time.monotonic()
        with self._lock:
            self._patience.check(asked_s)
            now = self._header()
            if now != rejected or time.monotonic() - self._renewed_s < _RENEWAL_PAUSE_S:
                return now
            self._renewed_s = time.monotonic()
            self._token_ends_s, self._token = None, None
            self._loaded = self._load()
            self._reload_certificate()
            return self._header()

    def _header(self) -> str | None:
        if self._plugin is None:
            # The official client renews OIDC tokens and the pod's own token here.
            loaded = self._loaded
            read = functools.partial(loaded.get_api_key_with_prefix, "BearerToken")
            value = self._limited(read) if loaded.refresh_api_key_hook else read()
            return str(value) if value else None
        ends_s = self._token_ends_s
        if self._token is None or (ends_s is not None and time.time() > ends_s - _EXEC_SKEW_S):
            self._run_plugin()
        return self._token

    def _load(self) -> Configuration:
        """Load the context. Raises KubeError, MissingDependencyError."""
        try:
            from kubernetes import config as official
            from kubernetes.client import Configuration
            from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
        except ImportError:
            raise MissingDependencyError(
                "Clusters on Kubernetes need the package `kubernetes`, which is not installed",
                remedy="pip install 'llmops-kernel[kubernetes]'",
            ) from None
        loaded = Configuration()
        try:
            if self.context.name == IN_CLUSTER:
                official.load_incluster_config(client_configuration=loaded)
                return loaded
            files = os.pathsep.join(str(path) for path in kubeconfig.files())
            merged = KubeConfigMerger(files)
            self._plugin = _take_plugin(merged.config, self.context)
            # Renewed OIDC tokens are written back: the old refresh token may be invalid now.
            loader = KubeConfigLoader(
                merged.config,
                active_context=self.context.name,
                config_persister=merged.save_changes if self._plugin is None else None,
            )
            self._limited(lambda: loader.load_and_set(loaded))
        except (official.ConfigException, OSError, ValueError, KeyError, TypeError) as error:
            raise KubeError(
                f"Kubeconfig context {self.context.name!r} is not usable: {error}",
                reason="BadKubeconfig",
                remedy=with_scope(
                    "`kubectl version` shows kubectl's own message", context=self.context.name
                ),
            ) from None
        return loaded

    def _run_plugin(self) -> None:
        """Run the plug-in directly: the official client only logs that it failed, and continues."""
        plugin = self._plugin
        assert plugin is not None
        self._since_s = time.monotonic()
        try:
            status = plugin.run()
        except PluginMissing as error:
            raise self._plugin_failed(str(error), remedy=error.remedy) from None
        except PluginError as error:
            is_timeout = isinstance(error, PluginTimeout)
            raise self._plugin_failed(str(error), is_timeout=is_timeout) from None
        except Exception as error:
            raise self._plugin_failed(f"failed: {str(error)[:500]}") from None
        finally:
            self._since_s = None
        self._patience.worked()
        if "token" in status:
            self._token = f"Bearer {status['token']}"
        elif "clientCertificateData" in status:
            _load_chain(self._ssl, status["clientCertificateData"], status.get("clientKeyData", ""))
        else:
            raise self._plugin_failed("returned neither a token nor a certificate")
        self._token_ends_s = _seconds(status.get("expirationTimestamp"))

    def _limited(self, work: Callable[[], T]) -> T:
        """Run the official client, which waits for identity providers without a limit."""
        try:
            return within_limit(work)
        except PluginTimeout as error:
            raise self._plugin_failed(str(error), is_timeout=True) from None

    def _plugin_failed(
        self, failure: str, *, is_timeout: bool = False, remedy: str = ""
    ) -> KubeError:
        remedy = remedy or self.sign_in
        if is_timeout:
            remedy += f"; {LIMIT_ENV_VAR}=SECONDS gives it more time"
        error = KubeError(f"{self._described()} {failure}", reason="Unauthorized", remedy=remedy)
        self._patience.failed(error, is_timeout=is_timeout)
        return error

    def _described(self) -> str:
        if self._plugin is None:
            return f"The identity provider of context {self.context.name}"
        return f"The credential plug-in {self._plugin_name()} of context {self.context.name}"

    def _plugin_name(self) -> str:
        return "" if self._plugin is None else self._plugin.name

    def _reload_certificate(self) -> None:
        """Load it into the same SSL context, so that every client that has it uses the new one."""
        new = _certificate(self._loaded)
        if new and new != self._certificate:
            self._ssl.load_cert_chain(self._loaded.cert_file, self._loaded.key_file)
        self._certificate = new


class KubeAuth(httpx.Auth):
    """Sets `Authorization` on each request; repeats it once with new credentials after a 401."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        used = self._set(request, self._credentials.header())
        response = yield request
        if _worth_another(response, request):
            renewed = self._credentials.renew(used)
            if renewed != used:
                self._set(request, renewed)
                yield request

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        # A plug-in takes a second: do not run it on the event loop.
        wait = asyncio.get_running_loop().run_in_executor
        used = self._set(request, await wait(_WAITING, self._credentials.header))
        response = yield request
        if _worth_another(response, request):
            renewed = await wait(_WAITING, self._credentials.renew, used)
            if renewed != used:
                self._set(request, renewed)
                yield request

    def _set(self, request: httpx.Request, header: str | None) -> str | None:
        if header is not None:
            request.headers["Authorization"] = header
        if self._credentials.server_name:
            request.extensions["sni_hostname"] = self._credentials.server_name
        return header


def _worth_another(response: httpx.Response, request: httpx.Request) -> bool:
    # A streamed body was read already and cannot be sent again.
    return response.status_code == 401 and isinstance(request.stream, httpx.ByteStream)


def _take_plugin(config: Any, context: kubeconfig.Context) -> Plugin | None:
    """Take the plug-in out of the user, so that the official loader does not run it."""
    from kubernetes.config.kube_config import ConfigNode

    for node in config.value.get("users") or []:
        user = node.value.get("user") or {}
        if node.value.get("name") == context.user and user.get("exec"):
            section = ConfigNode("exec", user.pop("exec"))
            section["command"]  # Raises ConfigException where it is missing.
            cluster = config["clusters"].get_with_name(context.cluster)["cluster"]
            return Plugin(section, os.path.dirname(os.path.abspath(node.path)), cluster)
    return None


@functools.cache  # Once a process and server.
def _warn_unverified(server: str) -> None:
    _LOG.warning(
        "The certificate of the Kubernetes API server %s is not verified, because its kubeconfig"
        " has `insecure-skip-tls-verify: true`: whoever answers at this address receives your"
        " credentials. Set `certificate-authority` instead",
        server,
    )


def ssl_context(loaded: Configuration) -> ssl.SSLContext:
    """Return the SSL context. Raises KubeError."""
    if loaded.verify_ssl is False:
        _warn_unverified(str(loaded.host))
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        try:
            context = ssl.create_default_context(cafile=loaded.ssl_ca_cert or None)
        except (OSError, ssl.SSLError) as error:
            raise KubeError(
                f"The certificate authority of {loaded.host} cannot be read: {error}",
                reason="BadKubeconfig",
                remedy="check `certificate-authority` of the cluster in your kubeconfig",
            ) from None
    if loaded.cert_file:
        try:
            context.load_cert_chain(loaded.cert_file, loaded.key_file)
        except (OSError, ssl.SSLError) as error:
            raise KubeError(
                f"The client certificate for {loaded.host} cannot be read: {error}",
                reason="BadKubeconfig",
                remedy="check `client-certificate` of the user in your kubeconfig",
            ) from None
    return context


def _proxy_to(server: str, proxy: str | None) -> str | None:
    """Return the proxy, respecting NO_PROXY: the official client ignores that variable."""
    host = urlsplit(server).hostname or ""
    if proxy is None or proxy not in getproxies().values():
        return proxy
    return None if host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host) else proxy


def _certificate(loaded: Configuration) -> bytes | None:
    return Path(loaded.cert_file).read_bytes() if loaded.cert_file else None


def _load_chain(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load the chain from files, which live for a moment: Python's ssl reads files only."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{certificate}\n{key}\n")
        file.flush()
        context.load_cert_chain(file.name)


def _seconds(timestamp: str | None) -> float | None:
    from datetime import datetime

    if not timestamp:
        return None
    try:
        return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
