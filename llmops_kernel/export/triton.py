"""A model repository of NVIDIA Triton for its vLLM backend.

Fields follow the backend's own samples and `src/model.py` (vllm_backend, 2026): the transaction
policy must be decoupled, the engine chooses the devices, and `model.json` holds the arguments of
vLLM's AsyncEngineArgs. The backend does not resolve relative paths there, so they are absolute:
those of a container that has the repository mounted at /models.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from llmops_kernel.export.vllm import EngineArguments, write_served
from llmops_kernel.export.weights import Located, Progress
from llmops_kernel.store.export_job import ExportJob, ExportLine

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
