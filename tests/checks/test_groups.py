"""How tests are divided among processes, by a real session of pytest with two of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.conftest import pytest_collection_modifyitems, pytest_xdist_make_scheduler
"""
FILE = """
import os
import re
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(6))
def test_one(number: int) -> None:
    with (Path(__file__).parent / "said").open("a") as said:
        said.write(f"{Path(__file__).name} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""


def test_a_file_stays_in_one_process_and_so_do_all_that_use_ray(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    ray: uses Ray\n")
    for name in ("test_a.py", "test_b.py", "test_c.py", "test_d.py"):
        (tmp_path / name).write_text(FILE)
    for name in ("test_b.py", "test_d.py"):
        (tmp_path / name).write_text(FILE + "\npytestmark = pytest.mark.ray\n")
    # A session in a process of pytest-xdist does not start another one.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--no-loadscope-reorder"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, env=env | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    processes = defaultdict(set)
    for line in (tmp_path / "said").read_text().splitlines():
        file, process = line.split()
        processes[file].add(process)
    assert {len(found) for found in processes.values()} == {1}
    assert processes["test_b.py"] == processes["test_d.py"]
    assert len(processes) == 4
    assert len(set.union(*processes.values())) == 2


def test_slow_tests_are_marked_in_their_own_files() -> None:
    """Where `.ci/test` looks for them: elsewhere they would never run."""
    mark = re.compile(r"\bmark\.(slow|beside|browser)\b")
    files = (ROOT / "tests").rglob("*.py")
    assert [f for f in files if not f.name.startswith("test_") and mark.search(f.read_text())] == []
