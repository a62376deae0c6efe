"""Weights on their way are read by nobody else; tried as a second user where the tests are root."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.services.export import export_run
from llmops_kernel.services.export_source import Options
from llmops_kernel.services.runs import Run
from llmops_kernel.store.export_job import ExportJob, ExportLine
from tests.export.conftest import Store

_READ = """
import os, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
sys.exit(not os.access(sys.argv[1], os.R_OK))
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder as `/tmp` is: every user can enter it, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="llmops-open-") as folder:
        os.chmod(folder, 0o1777)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        before = os.umask(0o022)
        yield Path(folder)
        os.umask(before)


def written(job: ExportJob, *, progress: object = None) -> ExportLine:
    """Write weights, and say whether others could read them."""
    weights = Path(job.folder) / "model.safetensors"
    weights.write_bytes(b"private")
    weights.chmod(0o644)  # As the real job does.
    can = Path(job.folder).stat().st_mode & 0o077 != 0
    if os.getuid() == 0:
        done = subprocess.run([sys.executable, "-c", _READ, str(weights)], check=False)
        can = done.returncode == 0
    return ExportLine(kind="done", notes=("readable" if can else "private",), command="")


def test_nobody_else_reads_what_is_being_uploaded(
    store: Store, adapter: Path, temporary: Path
) -> None:
    run = Run(store.backend, store.add("r", adapter))
    bucket = f"file://{temporary}/bucket"
    done = export_run(run, Options(to="hub", path=bucket), do=written)
    assert done.notes == ("private",)
    assert list(temporary.iterdir()) == []


def test_a_folder_of_the_users_choice_has_the_mode_of_a_new_one_or_keeps_its_own(
    store: Store, adapter: Path, temporary: Path
) -> None:
    run = Run(store.backend, store.add("r", adapter))
    out = temporary / "new" / "out"
    export_run(run, Options(to="merged", path=str(out)), do=written)
    assert out.stat().st_mode & 0o777 == 0o755
    (out / "llmops-export.json").write_text("{}")
    out.chmod(0o700)
    done = export_run(run, Options(to="merged", path=str(out), force=True), do=written)
    assert done.notes == ("private",)
    assert out.stat().st_mode & 0o777 == 0o700
