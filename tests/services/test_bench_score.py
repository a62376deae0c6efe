"""`llmops bench score`: its order, what it changes in a config, its saved results."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.errors import ConfigError
from llmops_kernel.services.score_bench import Size, changes, order, save, saved, sizes_of
from llmops_kernel.services.submission import from_config
from tests.views.score_bench.test_figures import figures


def test_each_size_loads_its_engine_once_and_is_measured_at_once() -> None:
    sizes = sizes_of([2, 1], [8, 1, 8])
    assert sizes == [Size(replicas=r, batch_size=b) for r in (1, 2) for b in (1, 8)]
    numbers = [turn.number for turn in order(sizes[:2], runs=2)]
    assert numbers == [None, 1, 2, None, 3, 4]


def test_a_run_leaves_the_users_output_alone(tmp_path: Path) -> None:
    config = tmp_path / "a.score.yaml"
    config.write_text(
        "model: tiny-llama\ninput: rows.jsonl\nprompt: '{text}'\n"
        "output: {url: s3://bucket/kept}\nengine: {replicas: 3, max_replicas: 4}\n"
        "evaluation: {judge: {model: tiny-llama, rubric: '{output}?'}}\n"
    )
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    settings = changes(Size(replicas=2, batch_size=8), rows=100)
    made = from_config(config, settings=settings).config.model_dump(mode="json")
    assert made["output"] == {"url": "", "part_rows": 25}
    assert made["input"]["limit"] == 100
    assert made["engine"]["replicas"] == made["engine"]["max_replicas"] == 2
    assert made["engine"]["batch_size"] == 8
    assert made["evaluation"]["judge"]["model"] == ""


def test_the_newest_result_is_planned_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="No scoring was measured"):
        saved()
    newer = figures(num_gpus=1)
    later = newer.setting.model_copy(update={"time": newer.setting.time.replace(day=23)})
    save(newer.model_copy(update={"setting": later}))
    first = save(figures())
    assert saved().setting.time.day == 23
    assert saved(first) == figures()
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    with pytest.raises(ConfigError, match="is not a result"):
        saved(broken)
