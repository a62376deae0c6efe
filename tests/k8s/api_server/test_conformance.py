"""The stand-in answers like a real API server: the probe's questions, the recorded answers.

The recorded server ran alone, so here the stand-in runs without its controllers too: nothing made
endpoints, counted quotas or ended namespaces.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.k8s.recordings import RECORDINGS
from tests.k8s.standin.process import StandIn

UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _comparable(answer: Any) -> Any:
    """Without what differs from run to run."""
    kept = {key: value for key, value in answer.items() if key != "ctype"}
    return json.loads(UID.sub("UID", json.dumps(kept)))


def test_the_answers_are_those_of_a_real_api_server(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    with StandIn(controllers=False) as standin:
        command = [sys.executable, str(RECORDINGS / "probe.py"), standin.url, "admintok", file]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    real = json.loads((RECORDINGS / "answers.json").read_text())
    ours = json.loads(file.read_text())
    different = [name for name in real if _comparable(real[name]) != _comparable(ours[name])]
    assert len(real) == 127
    assert different == []
