"""Where `llmops demo` takes its config and data from, and how it ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel import score_env
from llmops_kernel.cli.demo import Fit, run_demo
from llmops_kernel.config.assist.file_kinds import check_files
from llmops_kernel.errors import ConfigError
from llmops_kernel.kinds import score_config as score_files
from llmops_kernel.kinds.reading import from_path
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import AnyEvent, EvalEvent, PhaseEvent, StartEvent, StepEvent
from llmops_kernel.services.demo import (
    FILES,
    LEAST_ROWS,
    LEAST_STEPS,
    Speed,
    demo_config,
    menu_data,
    score_config,
    size_for,
    speed_of,
)
from llmops_kernel.store.journal.training_view import TrainingView
from tests.configs import load_training_config

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The package as a wheel installs it, without a clone around it."""
    package = tmp_path / "site-packages" / "llmops_kernel"
    for name in FILES:
        target = package / "demo_workspace" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(NOTEBOOKS / name, target)
    return package


def test_a_clone_trains_its_own_files() -> None:
    assert demo_config() == NOTEBOOKS / "lora.train.yaml"


def test_an_installed_package_copies_the_demo_and_it_is_complete(
    installed: Path, home: Path
) -> None:
    config = demo_config(package=installed)
    assert config == home / "demo" / "lora.train.yaml"
    assert check_files(load_training_config(config), config.parent) == []
    scores = score_config(config)
    assert scores == config.parent / "menu.score.yaml"
    read = from_path(kind_named("score"), scores)
    assert score_files.check_files(read, config.parent) == []
    config.write_text(config.read_text() + "# changed\n")
    (config.parent / "menu_hooks.py").unlink()
    assert demo_config(package=installed).read_text().endswith("# changed\n")
    assert (config.parent / "menu_hooks.py").exists()


def test_the_menu_data_of_examples_comes_with_the_package(installed: Path) -> None:
    assert menu_data() == NOTEBOOKS / "data"
    assert menu_data(package=installed) == installed / "demo_workspace" / "data"
    (installed / "demo_workspace" / "data" / "menu-train.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"menu-train\.jsonl does not exist"):
        menu_data(package=installed)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lora\.train\.yaml does not exist"):
        demo_config(tmp_path)


def test_a_workspace_may_have_no_score_config(tmp_path: Path) -> None:
    assert score_config(tmp_path / "lora.train.yaml") is None


@pytest.mark.parametrize(
    ("speed", "left_s", "steps", "rows", "again"),
    [
        # Two cores of Zen 5: nothing is cut.
        (Speed(start_s=8, step_s=0.2, batch_s=5), 180, 240, 96, False),
        # A little slower: fewer rows are no reason to begin again.
        (Speed(start_s=10, step_s=0.3, batch_s=10), 140, 240, 64, False),
        # Two cores with AVX2: fewer steps.
        (Speed(start_s=20, step_s=1.0, batch_s=10), 260, 184, 32, True),
        # However slow it is, the least is done.
        (Speed(start_s=60, step_s=4.5, batch_s=80), 60, 80, 32, True),
    ],
)
def test_the_demo_is_sized_to_what_the_first_steps_have_shown(
    speed: Speed, left_s: float, steps: int, rows: int, again: bool
) -> None:
    size = size_for(speed, left_s=left_s, steps=240, steps_done=8)
    assert (size.max_steps, size.rows, size.again) == (steps, rows, again)
    least = steps == LEAST_STEPS or rows == LEAST_ROWS
    assert size.seconds <= left_s or least


def test_a_run_that_is_nearly_done_is_not_begun_again() -> None:
    speed = Speed(start_s=20, step_s=2.0, batch_s=80)
    size = size_for(speed, left_s=60, steps=24, steps_done=20)
    assert (size.max_steps, size.rows, size.again) == (24, LEAST_ROWS, False)


_SECONDS = (4.0, 1.0, 1.5, 1.25, 1.0, 1.5, 1.0, 1.25, 1.25)


def _view(*, steps: int, at_start: bool = True) -> TrainingView:
    """A slow machine's run: the first step begins 30 s after submit, 12 s of them an evaluation."""
    shape = {"num_workers": 1, "global_batch_size": 2, "device": "cpu", "dtype": "float32"}
    events: list[AnyEvent] = [
        PhaseEvent(name="snapshot", state="begin", time_s=100.0),
        StartEvent(total_steps=240, time_s=115.0, **shape),
    ]
    if at_start:
        metrics = {"exact_match": 0.0}
        events.append(
            EvalEvent(step=0, metrics=metrics, num_rows=16, duration_s=12.0, time_s=130.0)
        )
    for number in range(steps):
        time_s = 130.0 + sum(_SECONDS[: number + 1])
        step_s = _SECONDS[number]
        events.append(StepEvent(step=number + 1, loss=1.0, step_time_s=step_s, time_s=time_s))
    return TrainingView(event.model_copy(update={"stream": "1-worker-1"}) for event in events)


def test_the_speed_is_known_after_eight_steps_and_without_what_only_the_first_one_does() -> None:
    assert speed_of(_view(steps=7)) is None
    speed = speed_of(_view(steps=9))
    assert speed == Speed(start_s=18.0, step_s=1.25, batch_s=12.0)
    assert speed_of(_view(steps=9, at_start=False)) is None


def test_what_is_cut_is_said_with_its_reason() -> None:
    seconds = [15.0]
    fit = Fit(until_s=205, is_free=True, clock=lambda: seconds[0])
    assert not fit.is_too_slow(_view(steps=7))
    assert fit.is_too_slow(_view(steps=8))
    assert fit.size is not None
    assert fit.size.seconds <= 205 - 15
    assert fit.steps_words == (
        "This machine takes 1.2 s for a step: the run is stopped, and submitted again with"
        f" {fit.size.max_steps} of its 240 steps, which learn less."
        " `llmops demo --max-steps 240` makes all of them."
    )
    seconds[0] = 205 - 80  # The steps took less than expected: the rows get what is left.
    assert fit.rows() == (
        64,
        "Each model answers 64 of 96 rows: this machine takes about 12.0 s for 32 answers.",
    )
    late = Fit(until_s=205, is_free=True, clock=lambda: 190.0)
    assert late.is_too_slow(_view(steps=8))
    assert f"with {LEAST_STEPS} of its 240 steps, which learn less. It cannot" in late.steps_words
    assert late.rows()[0] == LEAST_ROWS


def test_who_names_the_number_of_steps_gets_them_and_all_rows() -> None:
    named = Fit(until_s=0.0, is_free=False, clock=lambda: 190.0)
    assert not named.is_too_slow(_view(steps=8))
    assert (named.rows(), named.steps_words) == ((96, ""), "")


@pytest.fixture
def tiny(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's workspace with a tiny model."""
    monkeypatch.delenv(score_env.ENV_VAR, raising=False)  # Transformers answers.
    workspace = home / "demo"
    for name in FILES:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(NOTEBOOKS / name, workspace / name)
    texts = {"SmolLM2-135M-Instruct": "tiny-llama", "max_length: 96": "max_length: 512"}
    _change(workspace / "lora.train.yaml", texts)
    _change(workspace / "menu.score.yaml", {"SmolLM2-135M-Instruct": "tiny-llama"})
    return workspace


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.slow
def test_a_machine_that_is_too_slow_submits_the_run_again_with_fewer_steps(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _change(tiny / "lora.train.yaml", {"max_steps: 240": "max_steps: 9000"})
    try:
        code = run_demo(tiny, max_steps=None, time_s=30)
        shown = capsys.readouterr().out
        assert code == 0, shown
        tuned, base, again, first = llmops.runs()[:4]
        assert (first.state, again.state) == ("STOPPED", "SUCCEEDED")
        assert first.config.training.max_steps == 9000
        steps = again.config.training.max_steps
        assert LEAST_STEPS <= steps < 9000
        assert again.view.last_step == steps
        rates = [step.learning_rate or 0.0 for step in again.view.steps]
        assert rates[-1] < max(rates) / 5, "the schedule ends with the steps that there are"
        words = " ".join(shown.split())
        assert f"submitted again with {steps:,} of its 9,000 steps" in words
        rows = base.config.input.limit
        assert tuned.config.input.limit == rows
        assert LEAST_ROWS <= rows <= 96
        assert "`llmops demo --max-steps 9000` makes all of them" in words
        # It ends with base and adapter in one table.
        assert base.record.kind == tuned.record.kind == "score"
        assert (base.config.model.adapter, bool(tuned.config.model.adapter)) == ("", True)
        compared = shown.partition("the base model against the adapter")[2]
        assert compared.index(base.id) < compared.index(tuned.id)
        for word in ("field_accuracy", "95 % interval", "delta"):
            assert word in compared
    finally:
        llmops.down("local")


def _change(file: Path, texts: dict[str, str]) -> None:
    content = file.read_text()
    for old, new in texts.items():
        assert old in content
        content = content.replace(old, new)
    file.write_text(content)
