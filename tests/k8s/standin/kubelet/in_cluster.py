"""How a container reaches the API server: its account's token, where all clients look for it."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.k8s.standin.kubelet.pod_folder import PodFolder
from tests.k8s.standin.runtime.client import Api

_UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
_MOUNT = 'mount --bind "$0" "$(readlink -f /var/run)" && exec "$@"'
_LIFETIME_S = 3600


async def credentials(api: Api, folder: PodFolder) -> dict[str, str]:
    """Write token, authority and namespace; return the variables with the server's address."""
    namespace = folder.pod["metadata"]["namespace"]
    account = folder.pod["spec"].get("serviceAccountName") or "default"
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    made = await api.create(path, {"spec": {"expirationSeconds": _LIFETIME_S}})
    scope = folder.path / "run" / "secrets" / "kubernetes.io" / "serviceaccount"
    scope.mkdir(parents=True, exist_ok=True)
    (scope / "token").write_text(made["status"]["token"])
    (scope / "namespace").write_text(namespace)
    with open(api.ca_file) as authority:
        (scope / "ca.crt").write_text(authority.read())
    server = urlsplit(api.url)
    return {
        "KUBERNETES_SERVICE_HOST": str(server.hostname),
        "KUBERNETES_SERVICE_PORT": str(server.port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(server.port),
    }


def mounted(folder: PodFolder, words: list[str]) -> list[str]:
    """Return the command with mounts of its own: /var/run is the pod's.

    The path of the token is fixed in Kubernetes' clients, and on this machine it is everybody's.
    """
    return [*_UNSHARE, "/bin/sh", "-c", _MOUNT, str(folder.path / "run"), *words]


__all__ = ["credentials", "mounted"]
