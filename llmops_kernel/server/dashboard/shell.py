"""Jupyter's page around a Ray Dashboard: it holds the login, and the frame in it does not."""

from __future__ import annotations

import secrets
from functools import cache
from html import escape
from pathlib import Path

_STATIC = Path(__file__).parent / "static"


def new_nonce() -> str:
    return secrets.token_urlsafe(16)


def policy(nonce: str) -> str:
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}';"
        " connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'self'"
    )


def page(cluster: str, *, xsrf: str, nonce: str) -> str:
    """Return the page. `xsrf` goes along with its requests for a view."""
    values = {"CLUSTER": cluster, "XSRF": xsrf, "NONCE": nonce}
    text = _template()
    for name, value in values.items():
        text = text.replace(f"@{name}@", escape(value))
    return text.replace("@SCRIPT@", _script())


@cache
def _template() -> str:
    return (_STATIC / "shell.html").read_text(encoding="utf-8")


@cache
def _script() -> str:
    return (_STATIC / "shell.js").read_text(encoding="utf-8")
