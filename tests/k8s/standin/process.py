"""Start the stand-in of a Kubernetes API server in a separate process.

Addresses behind services and pods come from annotations of the pods: `standin/address: host:port`
for all ports, or `standin/ports: {"8265": "127.0.0.1:1234"}` by container port. Logs come from the
file that `standin/log` names, or by container from `standin/logs: {"container": "/path"}`.
A node with the annotation `standin/graceful` has a kubelet that ends its pods: deleting a pod there
marks it and waits for the kubelet's delete with gracePeriodSeconds=0.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import trustme
import yaml

from tests.k8s.recordings import RAYCLUSTER_CRD
from tests.k8s.standin.kubelet.pod_folder import free_port

ROOT = Path(__file__).parents[3]
Body = dict[str, Any]


@dataclass(frozen=True)
class PolicyRule:
    """What a role allows."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def body(self) -> Body:
        rule = {
            "apiGroups": list(self.groups),
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }
        return rule | ({"resourceNames": list(self.names)} if self.names else {})


def shipped_rules() -> list[PolicyRule]:
    """What the Role of `cluster_templates/rbac.yaml` allows."""
    role = next(yaml.safe_load_all((ROOT / "cluster_templates" / "rbac.yaml").read_text()))
    return [
        PolicyRule(tuple(rule["apiGroups"]), tuple(rule["resources"]), tuple(rule["verbs"]))
        for rule in role["rules"]
    ]


class StandIn:
    """One API server; a context manager."""

    admin_token = "admintok"
    user_token = "usertok"

    def __init__(
        self,
        *,
        controllers: bool = True,
        kueue: bool = True,
        crd: Path | None = RAYCLUSTER_CRD,
        bookmark_s: float = 10.0,
        has_disk: bool = False,
        starting_s: float = 2.0,
    ) -> None:
        """With a disk it can be killed and started again; for `starting_s` it refuses then."""
        self.options = ["--bookmark-s", str(bookmark_s)]
        self.options += [] if controllers else ["--no-controllers"]
        self.options += [] if kueue else ["--no-kueue"]
        if crd is not None:
            self.options += ["--crd", str(crd)]
        self.authority = trustme.CA()
        self.folder = Path(tempfile.mkdtemp(prefix="standin-"))
        self.ca_file = self.folder / "ca.pem"
        if has_disk:
            self.options += ["--etcd", str(self.folder / "etcd"), "--starting-s", str(starting_s)]
            self.options += ["--port", str(free_port())]
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self._control: httpx.Client | None = None
        self._admin: httpx.Client | None = None

    def __enter__(self) -> StandIn:
        self.authority.cert_pem.write_to_path(self.ca_file)
        issued = self.authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_and_cert_chain_pem.write_to_path(self.folder / "server.pem")
        self.start()
        return self

    def start(self) -> None:
        """Start it, or start it again after `kill`: at the same address, with what it had."""
        certificate = self.folder / "server.pem"
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.k8s.standin.api.server"),
                *("--certificate", str(certificate), "--ca", str(self.ca_file)),
                *self.options,
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        started = json.loads(self.process.stdout.readline())
        self.url = f"https://127.0.0.1:{started['port']}"
        base = f"http://127.0.0.1:{started['control']}"
        self._control = httpx.Client(base_url=base, trust_env=False, timeout=30)
        self._admin = self.client()

    def kill(self) -> None:
        """End it with SIGKILL; with a disk, `start` starts it again."""
        for client in (self._control, self._admin):
            if client is not None:
                client.close()
        if self.process is not None:
            self.process.kill()
            self.process.communicate()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def client(self, token: str | None = None, **more: Any) -> httpx.Client:
        """Return a client as the administrator, or with another token."""
        headers = {"Authorization": f"Bearer {token or self.admin_token}"}
        options = {"base_url": self.url, "timeout": 30, "trust_env": False} | more
        return httpx.Client(headers=headers, verify=self.context(), **options)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def kubeconfig(
        self,
        path: Path,
        *,
        context: str = "standin",
        namespace: str = "default",
        token: str | None = None,
        exec_command: list[str] | None = None,
        client_name: str = "",
        server: str = "",
    ) -> Path:
        """Add a context to a kubeconfig file, which is created if it is missing.

        Credentials: a token (the administrator's by default), a command that prints an
        ExecCredential, or a client certificate for the user `client_name`. `server`: another
        address that leads here.
        """
        existing = yaml.safe_load(path.read_text()) if path.exists() else None
        config = existing or {"apiVersion": "v1", "kind": "Config", "preferences": {}}
        config.setdefault("current-context", context)
        cluster = {"server": server or self.url, "certificate-authority": str(self.ca_file)}
        user = self._credentials(token, exec_command, client_name)
        scope = {"cluster": context, "user": context, "namespace": namespace}
        for key, name, value in (
            ("clusters", "cluster", cluster),
            ("users", "user", user),
            ("contexts", "context", scope),
        ):
            others = [item for item in config.get(key, []) if item["name"] != context]
            config[key] = [*others, {"name": context, name: value}]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(config))
        return path

    def _credentials(self, token: str | None, command: list[str] | None, client_name: str) -> Body:
        if command:
            return {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": command[0],
                    "args": command[1:],
                    "interactiveMode": "Never",
                }
            }
        if client_name:
            issued = self.authority.issue_cert(common_name=client_name)
            file = self.folder / f"client-{client_name}.pem"
            issued.private_key_and_cert_chain_pem.write_to_path(file)
            return {"client-certificate": str(file), "client-key": str(file)}
        return {"token": token or self.admin_token}

    def call(self, name: str, /, **body: Any) -> Body:
        """Call a control route and return its answer."""
        assert self._control is not None
        answer = self._control.post(f"/{name}", json=body)
        assert answer.is_success, f"{name}: {answer.status_code} {answer.text}"
        result: Body = answer.json()
        return result

    def put(self, obj: Body) -> Body:
        """Create or replace an object as it is, with its status."""
        return self.call("put", **obj)

    def user(
        self,
        name: str,
        token: str,
        rules: list[PolicyRule] | None = None,
        namespace: str | None = None,
        *,
        lifetime_s: float | None = None,
    ) -> None:
        """Add a user with these rules, in one namespace or in all."""
        self.call("user", name=name, token=token, lifetime_s=lifetime_s)
        if rules is None:
            return
        prefix, meta = ("", {"name": f"of-{name}", "namespace": namespace})
        if namespace is None:
            prefix, meta = "Cluster", {"name": f"of-{name}"}
        group = "rbac.authorization.k8s.io"
        listed = [rule.body() for rule in rules]
        self.put(
            {
                "apiVersion": f"{group}/v1",
                "kind": f"{prefix}Role",
                "metadata": meta,
                "rules": listed,
            }
        )
        self.put(
            {
                "apiVersion": f"{group}/v1",
                "kind": f"{prefix}RoleBinding",
                "metadata": meta,
                "roleRef": {
                    "apiGroup": group,
                    "kind": f"{prefix}Role",
                    "name": meta["name"],
                },
                "subjects": [{"kind": "User", "name": name}],
            }
        )

    def install_crd(self, crd: Path | Body) -> None:
        """Install this CRD; it replaces one of the same name."""
        if isinstance(crd, Path):
            self.call("crd", path=str(crd))
        else:
            self.call("crd", definition=crd)

    def remove_crd(self, plural: str, group: str) -> None:
        self.call("remove_crd", plural=plural, group=group)

    def fault(self, kind: str, **more: Any) -> Body:
        """Inject a fault.

        On requests that match `path` (regular expression), `method`, `verb`, `user`, and only
        `count` times or a `share` of them where these are given: "429" and "503" (retry_after=),
        "slow" (seconds=), "drop" (the connection is cut), "lose" (it is cut when the request is
        carried out), "deny" (403), "too-large" (413 above limit= bytes), "error" (code=,
        message=). On all answers: "clock" (the server's is seconds= ahead). At once: "away"
        (seconds=), "drop-watch", "close-watch" and "410" (path=), "expire" (token=).
        """
        return self.call("fault", kind=kind, **more)

    def heal(self) -> None:
        self.call("heal")

    @contextlib.contextmanager
    def faulty(self, kind: str, **more: Any) -> Iterator[None]:
        self.fault(kind, **more)
        try:
            yield
        finally:
            self.heal()

    def stats(self, *, reset: bool = False) -> Body:
        """Return requests by verb and path, who asked what, open watches, rss, cpu_s, objects."""
        return self.call("stats", reset=reset)

    def create_namespace(self, name: str) -> str:
        assert self._admin is not None
        answer = self._admin.post("/api/v1/namespaces", json={"metadata": {"name": name}})
        assert answer.status_code in (201, 409), answer.text
        return name

    def delete_namespace(self, name: str) -> None:
        assert self._admin is not None
        self._admin.delete(f"/api/v1/namespaces/{name}")


__all__ = ["PolicyRule", "StandIn", "shipped_rules"]
