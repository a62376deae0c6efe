"""TLS between the pods of a cluster: each makes its own certificate before Ray starts.

Ray's clients check the address that they connect to, and a pod's address is not known before it
runs. So an init container signs a certificate with the cluster's authority, whose key no other
container sees.
"""

from __future__ import annotations

from typing import Any, Final

from llmops_kernel.config.models.kuberay_fields import Tls
from llmops_kernel.providers.certificates import ray_settings
from llmops_kernel.providers.kuberay.resource import names

Raw = dict[str, Any]
_FOLDER: Final = "/etc/llmops-tls"
_AUTHORITY: Final = "/etc/llmops-ca"
_VOLUME, _AUTHORITY_VOLUME = "llmops-tls", "llmops-ca"
_SMALL: Final = {"cpu": "100m", "memory": "128Mi"}
_DAYS: Final = 3650
# Only the authority's own certificate is trusted, not those that it was signed by: an
# organization's root has signed many others. Names of services cover that of the head.
_SCRIPT: Final = f"""\
umask 077
cd {_FOLDER}
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
-subj /CN=llmops -keyout tls.key -out request
dns="DNS:localhost,DNS:*.$POD_NAMESPACE.svc,DNS:*.$POD_NAMESPACE.svc.cluster.local"
echo "subjectAltName=IP:127.0.0.1,IP:$POD_IP,$dns" > names
openssl x509 -req -in request -CA {_AUTHORITY}/tls.crt -CAkey {_AUTHORITY}/tls.key \
-set_serial "0x$(openssl rand -hex 16)" -days {_DAYS} -extfile names -out tls.crt
openssl x509 -in {_AUTHORITY}/tls.crt -out ca.crt
rm request names
"""


def environment() -> dict[str, str]:
    """Return Ray's variables for those files."""
    return ray_settings(
        certificate=f"{_FOLDER}/tls.crt", key=f"{_FOLDER}/tls.key", authority=f"{_FOLDER}/ca.crt"
    )


def volumes(tls: Tls, *, cluster: str) -> list[Raw]:
    secret = tls.secret or names.tls_secret(cluster)
    return [
        {"name": _VOLUME, "emptyDir": {"medium": "Memory"}},
        {"name": _AUTHORITY_VOLUME, "secret": {"secretName": secret}},
    ]


def mounts() -> list[Raw]:
    return [{"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}]


def init_container(*, image: str, pull_policy: str) -> Raw:
    """Return the container that makes the certificate; the image needs `openssl`."""
    fields = {"POD_IP": "status.podIP", "POD_NAMESPACE": "metadata.namespace"}
    return {
        "name": "llmops-certificate",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["/bin/sh", "-ec", _SCRIPT],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in fields.items()
        ],
        "resources": {"requests": dict(_SMALL), "limits": dict(_SMALL)},
        "volumeMounts": [
            {"name": _VOLUME, "mountPath": _FOLDER},
            {"name": _AUTHORITY_VOLUME, "mountPath": _AUTHORITY, "readOnly": True},
        ],
    }


def autoscaler_options() -> Raw:
    """Return what the autoscaler's container needs, which the operator adds to the head."""
    return {
        "env": [{"name": name, "value": value} for name, value in environment().items()],
        "volumeMounts": mounts(),
    }


def certificate(tls: Tls, *, cluster: str, namespace: str, labels: dict[str, str]) -> Raw:
    """Return cert-manager's Certificate of the authority; the issuer signs only this one."""
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {
            "name": names.tls_secret(cluster),
            "namespace": namespace,
            "labels": labels,
        },
        "spec": {
            "secretName": names.tls_secret(cluster),
            "commonName": names.tls_secret(cluster)[:64],
            "isCA": True,
            "duration": "8760h",
            # Pods that start after a renewal must still be trusted by those that run.
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Never"},
            "issuerRef": {
                "group": "cert-manager.io",
                "kind": tls.issuer_kind,
                "name": tls.issuer,
            },
        },
    }
