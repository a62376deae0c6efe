"""Commands of kubectl and helm in remedies, with the context and the namespace they are for."""

from __future__ import annotations

import re
import shlex
from typing import Final

IN_CLUSTER: Final = "in-cluster"
"""Name of the context of a process that runs in a pod without a kubeconfig."""
INSTALL_KUBERAY: Final = (
    "`helm repo add kuberay https://ray-project.github.io/kuberay-helm/ &&"
    " helm install kuberay-operator kuberay/kuberay-operator` installs it"
)
_KUBECTL: Final = re.compile(r"`kubectl (?!--context |config )([^`]*)")
_HELM: Final = re.compile(r"\bhelm install ")
_WITHOUT_NAMESPACE: Final = re.compile(
    r"auth|version|\w+ (namespace|node|priorityclasses|storageclass|admissionchecks)\b"
)


def with_scope(remedy: str, *, context: str, namespace: str = "") -> str:
    """Add the context and the namespace to the commands in a remedy.

    A pod without a kubeconfig has no contexts to name.
    """
    place = "" if context == IN_CLUSTER else f"--context {shlex.quote(context)} "

    def scoped(found: re.Match[str]) -> str:
        own = "" if _WITHOUT_NAMESPACE.match(found[1]) or not namespace else f"-n {namespace} "
        return f"`kubectl {place}{own}{found[1]}"

    remedy = _KUBECTL.sub(scoped, remedy)
    helm = place.replace("--context", "--kube-context")
    return _HELM.sub(lambda found: f"{found[0]}{helm}", remedy)
