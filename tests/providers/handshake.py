"""What a server of Ray answers to a client that has, or lacks, a certificate."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""How gRPC begins: the preface of HTTP/2 and empty settings."""


def lets_in(
    address: tuple[str, int],
    *,
    authority: Path | None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> bool:
    """Return whether it answers as gRPC does. Without `authority` TLS is not used."""
    with socket.create_connection(address, timeout=20) as plain:
        if authority is None:
            return _ask(plain)
        context = ssl.create_default_context(cafile=str(authority))
        # As gRPC: an authority need not be a root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.set_alpn_protocols(["h2"])
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        with context.wrap_socket(plain, server_hostname=address[0]) as sealed:
            # With TLS 1.3 a client hears of its refusal only when it reads.
            return _ask(sealed)


def _ask(connection: socket.socket) -> bool:
    try:
        connection.sendall(_HTTP2)
        # Its settings come first: three bytes of length, then the type of that frame.
        return connection.recv(64)[3:4] == b"\x04"
    except (ConnectionError, ssl.SSLError):
        return False
