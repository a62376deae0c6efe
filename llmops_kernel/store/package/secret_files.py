"""Which files of a workspace stay at home because they usually hold secrets.

What travels is kept in the store, in Ray's package store and on each node of the cluster, where
others may read it. The names are those of the tools that write them; a secret under a name of the
user's own is not found. `!NAME` in `.llmopsignore` includes a file.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

SECRETS = (
    *(".env", ".env.*", "*.env", ".envrc", ".envrc.*", ".netrc", "_netrc", ".authinfo*"),
    # Keys: a suffix tells several of one kind apart (id_rsa_work).
    *(".ssh", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".gnupg", ".password-store"),
    *("*.pem", "*.key", "*.ppk", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ovpn"),
    *(".secrets", "secrets.json", "secrets.toml", "secrets.yaml", "secrets.yml", "secrets.ini"),
    # Clouds, clusters and object stores.
    *(".aws", ".azure", ".kube", "kubeconfig", "kubeconfig.json", "kubeconfig-*"),
    *("kubeconfig.y*ml", "kubeconfig_*.y*ml"),
    *("*.kubeconfig", "*-kubeconfig.y*ml", "*_kubeconfig.y*ml", ".boto", ".s3cfg", ".vault-token"),
    *("credentials.json", "application_default_credentials.json", "client_secret*.json"),
    *("service-account*.json", "service_account*.json", ".config/gcloud", ".config/rclone"),
    *("rclone.conf", ".rclone.conf", ".passwd-s3fs", ".mc/config.json", ".oci", ".config/doctl"),
    *(".docker/config.json", ".dockercfg", ".config/containers", ".config/gh"),
    *(".databrickscfg", ".snowsql", ".snowflake", ".dbt/profiles.yml"),
    # Terraform keeps passwords in its state and in the values of its variables.
    *(".terraform.d", ".terraformrc", "terraform.rc", "*.tfstate", "*.tfstate.*", "*.tfvars"),
    *("*.tfvars.json",),
    # Package registries, databases, hubs.
    *(".git-credentials", ".npmrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd"),
    *("pip.conf", ".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml"),
    *(".huggingface", ".kaggle", "kaggle.json", ".comet.config", ".streamlit/secrets.toml"),
    *(".jupyter", ".wgetrc", ".curlrc"),
    # What was typed.
    *(".*_history", ".histfile", ".zhistory", ".lesshst", ".viminfo", ".ipython"),
)
"""Names of files and folders, some with the folder before them; upper and lower case alike."""

_MAX_SHOWN = 8


def _matcher(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns), re.IGNORECASE)


_NAMES = _matcher([pattern for pattern in SECRETS if "/" not in pattern])
_PAIRS = _matcher([pattern for pattern in SECRETS if "/" in pattern])


def is_secret(rel: str) -> bool:
    """Return whether a file or folder usually holds secrets, by its path in the workspace."""
    parts = rel.rsplit("/", 2)
    return bool(_NAMES.match(parts[-1]) or _PAIRS.match("/".join(parts[-2:])))


def left_out_line(left_out: Sequence[str]) -> str:
    """Return the sentence about what stayed at home; empty if nothing did."""
    if not left_out:
        return ""
    more = len(left_out) - _MAX_SHOWN
    shown = ", ".join(left_out[:_MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return (
        f"Not uploaded, as such files usually hold secrets: {shown}."
        f" If a run needs one, include it by a line such as !{left_out[0]} in .llmopsignore"
    )
