"""The config files of the kind `score`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from llmops_kernel import score_env
from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.assist.template import new_file
from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.config.problems import Problem, no_such_file
from llmops_kernel.config.reading.check import overlap
from llmops_kernel.config.reading.hook_file import defined_hooks
from llmops_kernel.store.files import is_pattern

_HEAD = """\
Score config: a model's answers for each row of a table. Lines with a default value may be deleted.
Check it with `llmops check FILE` and run it with `llmops score FILE`.
"""
_ROWS = (".jsonl", ".parquet")
_FIRST = (
    "This machine has no vLLM yet: to run on a local cluster its own environment is made first, in"
    " minutes and with 4 GB. engine.type=transformers needs none."
)
_NONE = (
    "This machine has no vLLM yet: on a local cluster Transformers answers. `llmops score-env`"
    " makes vLLM's environment, in minutes and with 4 GB."
)
_HOOKS = ("format_prompt", "format_example")


def check_files(
    config: ScoreConfig, workspace: Path, /, *, wrong: Collection[str] = ()
) -> list[Problem]:
    """Return what is wrong with the local files that the config names. URLs are not opened."""
    problems = [
        *_input(config, workspace),
        *_hooks(config, workspace),
        *_adapter(config, workspace),
    ]
    return [
        problem for problem in problems if not any(overlap(problem.path, name) for name in wrong)
    ]


def _is_local(path: str) -> bool:
    return "://" not in path and not is_pattern(path)


def _input(config: ScoreConfig, workspace: Path) -> Iterator[Problem]:
    path = config.input.path
    file = workspace / Path(path).expanduser()
    looks_like_hub_id = path.count("/") == 1 and not Path(path).suffix and path[0] not in "./~"
    if not _is_local(path) or file.exists() or looks_like_hub_id:
        return
    yield no_such_file("input.path", path, workspace, _below(workspace, _ROWS))


def _below(workspace: Path, suffixes: tuple[str, ...]) -> list[str]:
    files = (file for suffix in suffixes for file in workspace.glob(f"**/*{suffix}"))
    return [str(file.relative_to(workspace)) for file, _ in zip(files, range(1000), strict=False)]


def _hooks(config: ScoreConfig, workspace: Path) -> Iterator[Problem]:
    file = config.hooks.file
    if file is None:
        return
    path = workspace / Path(file).expanduser()
    if not path.is_file():
        yield no_such_file("hooks.file", file, workspace, _below(workspace, (".py",)))
        return
    names = defined_hooks(path)
    prompt = config.prompt
    has_prompt = prompt.template or prompt.messages or prompt.column
    if names is not None and not has_prompt and not set(_HOOKS) & set(names):
        yield Problem(
            path="hooks.file",
            message=f"it defines none of {', '.join(_HOOKS)}, and the config has no prompt",
            value=file,
            suggestion="define format_prompt(row), or write prompt.template",
        )


def _adapter(config: ScoreConfig, workspace: Path) -> Iterator[Problem]:
    path = config.model.adapter
    if not path or not _is_local(path):
        return
    folder = workspace / Path(path).expanduser()
    if not (folder / "adapter_config.json").is_file() and not Path(path).is_absolute():
        yield Problem(
            path="model.adapter",
            message="no such folder with an adapter_config.json",
            value=path,
            suggestion="name the output folder of a LoRA run, or the run in model.run",
        )


def template() -> str:
    """Return the text of a new score config, every field explained."""
    values = {
        "model": "SmolLM2-135M-Instruct",
        "input": "data/eval.jsonl",
        "prompt": "{question}",
    }
    return new_file(_HEAD, ScoreConfig.model_validate(values))


def effect(config: ScoreConfig) -> list[str]:
    """Describe what is scored, and on what."""
    model, engine = config.model, config.engine
    name = f"the output of run {model.run}" if model.run else model.id
    if model.adapter and not model.run:
        name += f" with the adapter {model.adapter}"
    where = config.output.url or "the run's folder"
    return [
        f"Scores the rows of {config.input.path} with {name}: {config.task.type}.",
        f"Uses {engine.type} on {engine.replicas} replica{'' if engine.replicas == 1 else 's'};"
        f" a loaded engine waits {engine.keep_s:g} s for the next job.",
        f"Writes Parquet parts of {config.output.part_rows:,} rows to {where}.",
        *(
            [_FIRST if engine.type == "vllm" else _NONE]
            if score_env.is_missing(engine.type)
            else ()
        ),
    ]


SCORE_FILE = Kind(
    name="score",
    title="Score config",
    globs=("*.score.yaml", "*.score.yml"),
    new_file="new.score.yaml",
    model=ScoreConfig,
    template=template,
    effect=effect,
    check_files=check_files,
    remedy="a score config has `model`, `input`, `prompt`, and may have task, sampling, engine,"
    " evaluation, hooks, output",
    files={
        "input.path": _ROWS,
        "hooks.file": (".py",),
        "model.id": (),
        "model.adapter": (),
    },
)
