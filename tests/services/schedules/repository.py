"""A git repository of a user with a notebook, to schedule."""

from __future__ import annotations

import subprocess
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

WHO = ("-c", "user.name=Test", "-c", "user.email=test@example.org")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *WHO, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def init(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    return folder


def commit(folder: Path) -> str:
    """Commit all files; return the revision."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "change")
    return git(folder, "rev-parse", "HEAD")


def write_notebook(path: Path, *cells: str) -> Path:
    """Write a notebook; the first cell is that of its parameters."""
    first, *others = cells
    tagged = new_code_cell(first, metadata={"tags": ["parameters"]})
    notebook = new_notebook(cells=[tagged, *map(new_code_cell, others)])
    notebook.metadata.kernelspec = {
        "name": "python3",
        "display_name": "Python",
        "language": "python",
    }
    path.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, path)
    return path


def printed(path: str) -> str:
    """Return what the cells of an executed notebook printed."""
    outputs = [each for cell in nbformat.read(path, 4).cells for each in cell.get("outputs", ())]
    return "".join(each.get("text", "") for each in outputs)
