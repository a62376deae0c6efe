"""Whether the Hugging Face Hub, or this machine's copy of it, has a model or a data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from llmops_kernel.store.preview_job import Finding

Kind = Literal["model", "dataset"]
_ANSWER_S = 5.0
_WORDS = {"model": "model", "dataset": "data set"}
_FILES = {"model": ("config.json",), "dataset": ("README.md", ".gitattributes")}


def hub_finding(
    path: str, kind: Kind, name: str, revision: str | None, *, progress: Callable[[str], None]
) -> Finding:
    """Return one sentence about a hub id; nothing that the hub answers is a problem.

    The nodes of a cluster may have another copy, another token and another network.
    """
    what = f"{_WORDS[kind]} {name!r}" + (f" (revision {revision})" if revision else "")
    if is_cached(kind, name, revision):
        return _note(path, f"the {what} is in this machine's cache of the Hugging Face Hub")
    from huggingface_hub import constants, is_offline_mode

    if is_offline_mode():
        return _warning(
            path,
            f"the {what} is not in this machine's cache, and HF_HUB_OFFLINE=1 forbids to ask the"
            " Hugging Face Hub",
            "the cluster's nodes need it in their cache, or HF_HUB_OFFLINE=0 and a network",
        )
    progress(f"Contacting the hub about the {what}")
    return _answer(path, kind, name, revision, what=what, host=constants.ENDPOINT)


def is_cached(kind: Kind, name: str, revision: str | None = None) -> bool:
    """Return whether a copy of this id is in the cache that hub clients share."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = (
            try_to_load_from_cache(name, file, repo_type=kind, revision=revision)
            for file in _FILES[kind]
        )
        return any(isinstance(one, str) for one in found)
    except HFValidationError:
        return False


def _answer(
    path: str, kind: Kind, name: str, revision: str | None, *, what: str, host: str
) -> Finding:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    ask = HfApi().model_info if kind == "model" else HfApi().dataset_info
    try:
        ask(name, revision=revision, timeout=_ANSWER_S)
    except GatedRepoError:
        return _warning(
            path,
            f"the {what} is gated, and the hub lets this machine's account not read it",
            "accept its terms on its page of the hub, and give the cluster's nodes HF_TOKEN",
        )
    except RevisionNotFoundError:
        return _warning(path, f"the hub has no such revision of the {what}", "check model.revision")
    except (RepositoryNotFoundError, HFValidationError):
        return _warning(
            path,
            f"the hub has no {what}, or does not show it to this machine",
            "check its name; a private one needs HF_TOKEN on the cluster's nodes; a local folder is"
            " named from the workspace",
        )
    except Exception as error:  # The hub's client raises those of its HTTP client as well.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return _warning(
            path,
            f"{host} cannot be reached from this machine, so it is unknown whether the hub has the"
            f" {what}: {reason}",
            "check the name; the cluster's nodes may have a network of their own",
        )
    return _note(path, f"the hub has the {what}; the run downloads it")


def _note(path: str, message: str) -> Finding:
    return Finding(path=path, level="note", message=message)


def _warning(path: str, message: str, remedy: str) -> Finding:
    return Finding(path=path, level="warning", message=message, remedy=remedy)
