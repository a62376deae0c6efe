"""`llmops init | schema | check | plan`: configs of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import CONFIGS, command
from llmops_kernel.cli.complete import examples as complete_example
from llmops_kernel.cli.console import echo
from llmops_kernel.cli.runs.submit import Changes

if TYPE_CHECKING:
    from llmops_kernel.services.plan import Planned


@command(CONFIGS, example="llmops init my.train.yaml --model tiny-llama --method full")
def init(
    path: Annotated[
        Path | None,
        typer.Argument(
            help="File to write, `lora.train.yaml` by default; with --example also a folder.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Catalogue name, folder or hub id.")] = (
        "SmolLM2-135M-Instruct"
    ),
    data: Annotated[str, typer.Option(help="Training rows.")] = "data/train.jsonl",
    method: Annotated[str, typer.Option(help="`lora`, `qlora` or `full`.")] = "lora",
    example: Annotated[
        str | None,
        typer.Option(
            help="Write a complete example with its data: `chat`, `alpaca`, `dpo`, `reward`, "
            "`distill`, `classify`, `two-tower`, "
            "`continued-pretraining`, `zero3-offload` or `script`.",
            autocompletion=complete_example,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Write a config with every field explained: a training config, or x.script.yaml, ...

    With --example: a config that trains as it is, with its data.
    """
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.services import configs

    if example is None:
        path_written = configs.init(path, model=model, data=data, method=method, force=force)
        out().print(f"Wrote {path_written}.")
        if "://" not in data and not (Path(path_written).parent / data).exists():
            out().print(
                f"{plain(data)} does not exist yet: put your rows there, or name another file."
            )
            out().print("A config with data that trains as it is: llmops init --example chat")
        out().print(f"Next: llmops check {path_written}")
        return
    answers = {"model": model, "train": data, "method": method}
    files = configs.init_example(example, path, answers=answers, force=force)
    out().print(f"Wrote {', '.join(map(str, (files.config, *files.others)))}.")
    out().print(f"Next: llmops check {files.config}, then llmops submit {files.config} --follow")


@command(CONFIGS, example="llmops schema > train.schema.json")
def schema(
    kind: Annotated[str, typer.Argument(help="Kind of run: `train` or `script`.")] = "train",
    of: Annotated[
        str, typer.Option(help="A command with `--json`, or `error`: the schema of its output.")
    ] = "",
) -> None:
    """Print the JSON schema of a kind's configs, for editors; or of what a command prints."""
    from llmops_kernel.services.configs import schema as schema_of

    if of:
        from llmops_kernel.cli.outputs import output_schema

        echo(json.dumps(output_schema(of), indent=2))
        return
    echo(json.dumps(schema_of(kind), indent=2))


@command(CONFIGS, example="llmops check lora.train.yaml training.max_steps=20")
def check(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Configs, cluster templates, or folders of them; `section.field=value` overrides a"
            " field in each.",
            metavar="FILE... [KEY=VALUE...]",
        ),
    ],
    workspace: Annotated[
        Path | None, typer.Option(help="Folder that relative paths start from.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Only the configs and the shape of their files: nothing is tokenised."
        ),
    ] = False,
) -> None:
    """Report all mistakes in configs and in the files they name. Nothing is started.

    For a training config, sample rows are formatted and tokenised, hub ids are looked up, and the
    packages of trackers and the output folder are checked. The exit code is 0 if every file is
    valid, else 1; warnings do not change it.
    """
    from llmops_kernel.cli.config_check import check_all, report
    from llmops_kernel.config.reading.shape import is_override

    overrides = [argument for argument in files if is_override(argument)]
    paths = [
        path
        for argument in files
        if argument not in overrides
        for path in _configs_at(Path(argument))
    ]
    if not paths:
        raise typer.BadParameter("give at least one file to check")
    checks = check_all(paths, overrides, workspace=workspace, quick=quick)
    report(checks, as_json=as_json)
    raise typer.Exit(0 if all(result.is_valid for result in checks) else 1)


def _configs_at(path: Path) -> list[Path]:
    """Return the configs in a folder, not those below it; anything else as it is."""
    from llmops_kernel.services.configs import file_kind_of

    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and file_kind_of(file))
    return files or [path]


# --- What a training needs, before it is run ---

Device = Annotated[str | None, typer.Option(help="Accelerator, such as `H100 SXM`; `cpu`.")]
WhatIf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Plan the config with this change too; repeatable, and several with commas.",
    ),
]
Rows = Annotated[int | None, typer.Option(help="Training rows, where max_steps is not set.", min=1)]
Fastest = Annotated[bool, typer.Option("--fastest", help="Look for the fastest settings that fit.")]
Trace = Annotated[
    bool, typer.Option("--trace", help="Also run two steps without memory (PyTorch).")
]
MeanLength = Annotated[
    float | None, typer.Option(help="Mean length of a sequence in tokens.", min=1)
]
LabelShare = Annotated[
    float | None, typer.Option(help="Share of the tokens with a label.", min=0, max=1)
]
Network = Annotated[
    float | None, typer.Option(help="GB a second that a node sends to others.", min=0.001)
]
ModelConfig = Annotated[
    Path | None, typer.Option(help="The model's config.json, if it is not here.")
]


@command(
    CONFIGS,
    example="llmops plan lora.train.yaml --cluster gcp-h100 --what-if method.type=qlora",
)
def plan(
    config: Annotated[Path, typer.Argument(help="Training config.", metavar="FILE")],
    overrides: Changes = None,
    cluster: Annotated[str, typer.Option(help="Template: its machines and prices.")] = "local",
    device: Device = None,
    what_if: WhatIf = None,
    fastest: Fastest = False,
    trace: Trace = False,
    rows: Rows = None,
    mean_length: MeanLength = None,
    label_share: LabelShare = None,
    network: Network = None,
    model_config: ModelConfig = None,
    workspace: Annotated[
        Path | None, typer.Option(help="Folder that relative paths start from.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show memory, speed and cost that are expected of a training. Nothing is started.

    From the config, the model's config.json and the cluster template alone; what is assumed is
    listed. The exit code is 1 if the config does not fit.
    """
    from llmops_kernel.cli.console import out
    from llmops_kernel.services.plan import plans
    from llmops_kernel.services.plan_inputs import Guess

    guess = Guess(
        device=device,
        mean_length=mean_length,
        label_share=label_share,
        rows=rows,
        network=network and network * 1e9,
        model_config=model_config,
    )
    groups = [change.split(",") for change in what_if or ()]
    with out(stderr=True).status("Planning ..."):
        planned = plans(
            config,
            overrides or (),
            groups,
            with_fastest=fastest,
            with_trace=trace,
            cluster=cluster,
            guess=guess,
            workspace=workspace,
        )
    _print_plans(config, planned, as_json=as_json)
    raise typer.Exit(1 if planned[0].plan.fits is False else 0)


def _print_plans(config: Path, planned: list[Planned], *, as_json: bool) -> None:
    from llmops_kernel.cli.console import facts, out, plain, print_json, table
    from llmops_kernel.views import plan as views

    if as_json:
        print_json({"plans": [one.to_dict() for one in planned]})
        return
    console, first = out(), planned[0].to_dict()
    where = f"{first['num_workers']} x {first['device'] or 'unknown device'}"
    lines = {"plan": f"{config} on {where}", **views.facts(first)}
    console.print(facts({label: plain(text) for label, text in lines.items()}))
    if len(planned) > 1:
        console.print()
        rows = [views.row(one.name, one.to_dict()) for one in planned]
        console.print(table(views.COLUMNS, rows, right=views.COLUMNS[1:], optional=("cost", "MFU")))
