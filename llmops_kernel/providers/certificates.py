"""The certificate with which the processes of a local cluster know each other."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from llmops_kernel.errors import ClusterStartError, MissingDependencyError
from llmops_kernel.hardware import loopback

_DAYS: Final = "3650"
_ANSWER_S: Final = 60


def make(folder: Path) -> None:
    """Write a new key and certificate, which is its own authority: only its holders are let in.

    Raises MissingDependencyError without openssl, ClusterStartError if it fails.
    """
    names = f"subjectAltName=IP:{loopback.ADDRESS},DNS:localhost"
    line = [
        *("openssl", "req", "-x509", "-nodes", "-days", _DAYS, "-subj", "/CN=llmops"),
        *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-addext", names),
        *("-keyout", str(key(folder)), "-out", str(certificate(folder))),
    ]
    key(folder).unlink(missing_ok=True)
    # openssl writes into the file that is there, and so never into one that others can read.
    os.close(os.open(key(folder), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        process = subprocess.run(
            line, capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except FileNotFoundError as error:
        raise MissingDependencyError(
            "You asked for `tls: true`, and there is no openssl to make the certificate",
            remedy="install openssl, or leave out tls",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise _certificate_error(f"no answer after {_ANSWER_S} s") from error
    if process.returncode != 0:
        raise _certificate_error((process.stderr.strip().splitlines() or ["no reason given"])[-1])


def _certificate_error(reason: str) -> ClusterStartError:
    return ClusterStartError(
        f"openssl cannot make a certificate: {reason}",
        remedy="update openssl (1.1.1 or later), or leave out `tls` of the template",
    )


def key(folder: Path) -> Path:
    return folder / "tls.key"


def certificate(folder: Path) -> Path:
    return folder / "tls.crt"


def settings(folder: Path) -> dict[str, str]:
    """Return the variables that turn on TLS, in both directions, in every process of Ray."""
    return ray_settings(
        certificate=str(certificate(folder)),
        key=str(key(folder)),
        authority=str(certificate(folder)),
    )


def ray_settings(*, certificate: str, key: str, authority: str) -> dict[str, str]:
    """Return Ray's variables for those files: it asks its clients for a certificate as well."""
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": certificate,
        "RAY_TLS_SERVER_KEY": key,
        "RAY_TLS_CA_CERT": authority,
    }
