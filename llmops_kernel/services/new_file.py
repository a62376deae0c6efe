"""Writes new files of the user's: configs and cluster templates."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.errors import ConfigError


def write_user_file(path: Path, text: str, *, force: bool, with_folder: bool = False) -> None:
    """Write a new file. Raises ConfigError if it exists, unless `force`, or cannot be written."""
    try:
        if with_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(
            f"{path} already exists.",
            remedy="choose another name, or overwrite it with --force (`force=True` in Python)",
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}.", remedy="choose another folder"
        ) from error
