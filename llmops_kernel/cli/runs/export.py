"""`llmops export`: hand the result of a run over to serving."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.console import echo
from llmops_kernel.cli.runs.submit import RunRef

if TYPE_CHECKING:
    from llmops_kernel.services.types import Export

_TARGET = "`merged`, `vllm`, `gguf`, `triton` or `hub`."
_PATH = (
    "Folder to write; for `hub` a URL such as s3://BUCKET/FOLDER."
    " Default: RUN-TARGET in this folder."
)
_DTYPE = "Of merged weights: `float32`, `bfloat16`, or `auto`: as the base model's files."
_GGUF = "Of a GGUF file: `f32`, `f16`, `bf16` or `q8_0`."
_NAME = "Name of the served model; default: that of the config."
_BASE = "Base model, where the run's own no longer exists."
_CHECK = "Number of answers to compare before and after; 0: none."
Text = str | None


@command(RUNS, example="llmops export last --to vllm --path served/menu-tags")
def export(
    run: RunRef = "last",
    to: Annotated[str, typer.Option(help=_TARGET, metavar="TARGET")] = "merged",
    path: Annotated[Text, typer.Option(help=_PATH)] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
    dtype: Annotated[str, typer.Option(help=_DTYPE)] = "auto",
    quantization: Annotated[str, typer.Option(help=_GGUF)] = "f16",
    lora: Annotated[bool, typer.Option("--lora", help="Keep the adapter: `vllm`, `hub`.")] = False,
    name: Annotated[Text, typer.Option(help=_NAME)] = None,
    base: Annotated[Text, typer.Option(help=_BASE)] = None,
    check: Annotated[int, typer.Option(help=_CHECK, min=0)] = 4,
    repo: Annotated[Text, typer.Option(help="Repository on the hub, OWNER/NAME.")] = None,
    public: Annotated[bool, typer.Option("--public", help="Create a public repository.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a run's result for serving: merged weights, vLLM, GGUF, Triton, or a hub.

    `last` is the newest run that has written a model.

    Greedy answers are compared before and after. An export that fails leaves no files. A
    token for the hub comes from HF_TOKEN or from `hf auth login`.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, plain, print_json
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.scoring.model import run_with_model

    errors = out(stderr=True)
    options: dict[str, Any] = dict(
        to=to, path=path, force=force, dtype=dtype, quantization=quantization
    )
    options |= dict(lora=lora, name=name, base=base, check=check, repo=repo, public=public)
    target = api.attach(run_with_model(run, current().store))
    result = target.export(**options, progress=lambda text: errors.print(f"{plain(text)} ..."))
    if as_json:
        print_json(asdict(result))
    else:
        _print(result)


def _print(result: Export) -> None:
    from llmops_kernel.cli.console import facts, out, plain
    from llmops_kernel.views import format as fmt

    size = f"{fmt.byte_size(result.size_bytes)} in {len(result.files)} files"
    lines = {
        "run": result.run_id,
        result.target: result.location,
        "size": size,
        "files": ", ".join(result.files[:8]) + (" ..." if len(result.files) > 8 else ""),
        "notes": "\n".join(result.notes),
    }
    out().print(facts({name: plain(value) for name, value in lines.items()}))
    if result.command:
        echo(f"\nUse it:\n{result.command}")
