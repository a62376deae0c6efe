"""Print what a tracker's own reader finds of the run, as JSON; runs in the trackers' environment.

Nothing of llmops_kernel is imported: `points` are [name, step, value], `config`, `facts` and
`samples` are texts, `state` is the tracker's word for how the run ended.
"""

from __future__ import annotations

import glob
import json
import os
import sys
import zipfile
from pathlib import Path

RUN = os.environ.get("RUN", "tags-1")


def mlflow(folder):
    from mlflow import MlflowClient
    from mlflow.artifacts import load_dict

    client = MlflowClient()
    (experiment,) = [e for e in client.search_experiments() if e.name == "tags"]
    (run,) = client.search_runs([experiment.experiment_id])
    points = [
        [key, metric.step, metric.value]
        for key in run.data.metrics
        for metric in client.get_metric_history(run.info.run_id, key)
    ]
    files = {}
    for item in client.list_artifacts(run.info.run_id):
        below = client.list_artifacts(run.info.run_id, item.path) if item.is_dir else [item]
        files |= {one.path: one.file_size for one in below}
    samples = [name for name in files if name.startswith("samples/")]
    uri = client.get_run(run.info.run_id).info.artifact_uri
    return {
        "points": points,
        "config": run.data.params,
        "facts": run.data.tags,
        "state": run.info.status,
        "samples": load_dict(f"{uri}/{samples[0]}") if samples else None,
        "files": files,
        "versions": [[v.name, v.source, v.tags] for v in client.search_model_versions()],
    }


def tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    path = folder / "trackers" / "tensorboard" / RUN
    reader = EventAccumulator(str(path), size_guidance={"tensors": 0})
    reader.Reload()
    points, texts = [], {}
    for tag in reader.Tags()["tensors"]:
        for event in reader.Tensors(tag):
            tensor = event.tensor_proto
            if tensor.string_val:
                texts[tag] = tensor.string_val[0].decode()
            else:
                points.append([tag, event.step, float(make_ndarray(tensor))])
    return {"points": points, "texts": texts}


def trackio(folder):
    from trackio.sqlite_storage import SQLiteStorage

    logs = SQLiteStorage.get_logs("tags", RUN)
    points = [
        [name, log["step"], value]
        for log in logs
        for name, value in log.items()
        if "/" in name and isinstance(value, (int, float))
    ]
    samples = [log["samples"] for log in logs if "samples" in log]
    config = SQLiteStorage.get_run_config("tags", RUN)
    return {"points": points, "config": config, "samples": samples}


def wandb(folder):
    """Read the offline sessions as `wandb sync` does."""
    from wandb.proto import wandb_internal_pb2

    points, config, exits = [], {}, []
    for path in sorted(glob.glob(str(folder / "trackers" / "wandb" / "offline-run-*" / "*.wandb"))):
        for data in _leveldb_records(Path(path).read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "history":
                row = {
                    "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item
                }
                points += [[k, row["step"], v] for k, v in row.items() if "/" in k]
            if kind in ("run", "config"):
                items = (record.run.config if kind == "run" else record.config).update
                names = [item.key or "/".join(item.nested_key) for item in items]
                values = [json.loads(item.value_json) for item in items]
                config |= dict(zip(names, values, strict=True))
            if kind == "exit":
                exits.append(record.exit.exit_code)
    return {"points": points, "config": config, "state": exits[-1] if exits else None}


def _leveldb_records(data):
    """Yield the records of a LevelDB log with W&B's header of 7 bytes: blocks of 32 KiB."""
    position, parts = 7, []
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        size = int.from_bytes(data[position + 4 : position + 6], "little")
        kind = data[position + 6]
        if kind == 0:
            position += left
            continue
        parts.append(data[position + 7 : position + 7 + size])
        position += 7 + size
        if kind in (1, 4):  # Full, last.
            yield b"".join(parts)
            parts = []


def comet_ml(folder):
    points, config, others, files = [], {}, {}, []
    for path in glob.glob(str(folder / "trackers" / "comet" / "*.zip")):
        with zipfile.ZipFile(path) as archive:
            lines = archive.read("messages.json").splitlines()
        for message in map(json.loads, lines):
            payload = message["payload"]
            if message["type"] == "metric_msg":
                metric = payload["metric"]
                value = float(metric["metricValue"])
                points.append([metric["metricName"], metric["step"], value])
            elif message["type"] == "parameter_msg":
                config[payload["param"]["paramName"]] = payload["param"]["paramValue"]
            elif message["type"] == "log_other":
                others[payload["key"]] = payload["value"]
            elif "file" in message["type"]:
                files.append(payload.get("additional_params", {}).get("fileName"))
    return {"points": points, "config": config, "facts": others, "files": files}


if __name__ == "__main__":
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))))
