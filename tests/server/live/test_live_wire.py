"""Every message of the live websocket is built from its model, which TypeScript has too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import llmops_kernel.server
from llmops_kernel.server.hub import FrameKind, frame
from llmops_kernel.server.wire.common import Trouble
from llmops_kernel.server.wire.live import LivePayloads, Nothing, RunRows

SERVER = Path(llmops_kernel.server.__file__).parent


def test_each_kind_has_its_model() -> None:
    assert set(get_args(FrameKind)) == set(LivePayloads.model_fields)


def test_no_message_is_built_by_hand() -> None:
    by_hand = [
        f"{path.relative_to(SERVER)}: {match.group()}"
        for path in SERVER.rglob("*.py")
        for match in re.finditer(r"\bFrame\([^)]*", path.read_text(encoding="utf-8"))
        if path.name != "hub.py"
    ]
    assert by_hand == []


def test_a_message_with_the_model_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="'trouble' carries"):
        frame("trouble", Nothing())


def test_data_are_json_and_the_payload_stays_as_it_is() -> None:
    made = frame("rows", RunRows(columns=[], first=3, generation="a-1", count=5), b"\0" * 8)
    assert made.data == {"columns": [], "first": 3, "generation": "a-1", "count": 5}
    assert made.payload == b"\0" * 8
    assert frame("trouble", Trouble(message="m")).data["problems"] == []
