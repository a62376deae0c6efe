"""Where outputs are, as CLI and Lab say it."""

from __future__ import annotations

import pytest

from llmops_kernel.metrics.events import OutputEvent
from llmops_kernel.views.state_text import COPIED, ONLY_THERE, TO_COPY, shown_outputs

FILES = [{"name": "a", "size_bytes": 1, "sha256": "0" * 64}]


def event(path: str, **fields: object) -> OutputEvent:
    data = {"path": path, "what": "merged_model", "size_bytes": 5, **fields}
    return OutputEvent.model_validate(data)


OFFERED = event("/pod/output", place="node", files=FILES)
COPY = event("/home/output", copied_from="/pod/output")


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        ([event("s3://bucket/x")], [("s3://bucket/x", "")]),
        ([event("/pod/output", place="node")], [("/pod/output", ONLY_THERE)]),
        ([OFFERED], [("/pod/output", TO_COPY)]),
        ([OFFERED, COPY], [("/home/output", COPIED)]),
        (
            [OFFERED, COPY, event("/pod/output", place="node", attempt=2)],
            [("/home/output", COPIED), ("/pod/output", ONLY_THERE)],
        ),
    ],
)
def test_an_output_says_where_it_is(
    events: list[OutputEvent], lines: list[tuple[str, str]]
) -> None:
    shown = shown_outputs(events)
    assert [(one.path, one.note) for one in shown] == lines
    assert {one.what for one in shown} == {"merged model"}
    assert shown[0].label == (f"merged model ({lines[0][1]})" if lines[0][1] else "merged model")
