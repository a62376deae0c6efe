"""Two workers train from each kind of object store: every row once, also where one is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.store.journal.journal import FolderTail
from tests.tables.servers import start
from tests.train.data.stream.files import rows, write_jsonl, write_parquet
from tests.train.data.stream.test_training import HOOKS, formatted
from tests.train.strategy_pairs import Pairs

pytestmark = [pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(600)]

COUNT = 64


@pytest.fixture(params=["s3", "gcs", "azure"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[start.Store]:
    (tmp_path / "server").mkdir()
    with getattr(start, request.param)(tmp_path / "server") as store:
        jsonl = write_jsonl(tmp_path / "a.jsonl", rows(30), blank_every=9)
        parquet = write_parquet(tmp_path / "b.parquet", rows(COUNT - 30, 30), group=11)
        for path in (jsonl, parquet):
            store.put(f"train/{path.name}", path.read_bytes())
        yield store


def test_each_row_is_trained_on_once_also_after_a_killed_worker(
    pairs: Pairs,
    make_config: Callable[..., Any],
    store: start.Store,
    workspace: Path,
    tmp_path: Path,
) -> None:
    (workspace / "hooks.py").write_text(HOOKS)
    url = f"{store.scheme}://{start.BUCKET}/train"
    config = make_config(
        data={"train": url, "streaming": True, "format": "text"},
        hooks="hooks.py",
        parallelism={"num_workers": 2},
        checkpoint={"every_steps": 3},
        training={"micro_batch_size": 2, "global_batch_size": 8, "max_steps": None},
    )
    folder = tmp_path / "run"
    assert pairs.run(config, folder, workspace, env={**store.env, "KILL_AT": "5"})[1] == -9
    # Four rows a step: up to the checkpoint of step 3 in the first attempt, the rest in the second.
    trained = [formatted(workspace, rank)[: 3 * 4] for rank in range(2)]
    codes = pairs.run(config, folder, workspace, env={**store.env, "KILL_AT": "0"}, attempt=2)
    assert codes == [0, 0], (folder / "0.log").read_text()[-3000:]
    events = FolderTail(folder / "journal").read()
    steps = [event for event in events if isinstance(event, StepEvent)]
    assert len({step.step for step in steps}) >= COUNT // 8
    assert next(step.step for step in steps if step.attempt == 2) == 4
    assert all(step.loss is not None and 0 < step.loss < 10 for step in steps)
    trained = [trained[rank] + formatted(workspace, rank) for rank in range(2)]
    assert sorted(trained[0] + trained[1]) == [*range(COUNT)]
    # Credentials are in the environment only.
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    secrets = [value for name, value in store.env.items() if "SECRET" in name or "CONN" in name]
    assert not [secret for secret in secrets if secret.encode() in written]
