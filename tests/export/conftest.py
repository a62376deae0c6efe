"""Finished runs in a real store: tiny-llama and tiny-qwen2 with an adapter or fully trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.metrics.events import (
    CheckpointEvent,
    EndEvent,
    EvalEvent,
    OutputEvent,
    StartEvent,
    StepEvent,
)
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.export import export_run
from llmops_kernel.services.export_source import Export, Options
from llmops_kernel.services.runs import Run
from llmops_kernel.store.export_job import ExportJob, ExportLine
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import GitState, RunRecord
from llmops_kernel.store.store import RunStore

PROMPT = "<|user|>what is 3 plus 4?<|end|><|assistant|>"


@dataclass
class Store:
    """A home folder, and the runs and exports that a test makes in it."""

    home: Path

    @property
    def backend(self) -> Backend:
        return Backend(store=RunStore(self.home))

    def add(
        self,
        run_id: str,
        result: Path | str | None,
        *,
        what: str = "adapter",
        state: Any = "SUCCEEDED",
        kind: str = "train",
        workspace: Path | None = None,
        prompts: Sequence[str] = (PROMPT,),
        computed_in: str = "float32",
        **sections: Any,
    ) -> str:
        """Record a run as a submission does, and journal it as a worker does."""
        config = self.config(what, **sections) if kind == "train" else {"script": "train.py"}
        record = RunRecord(
            run_id=run_id,
            kind=kind,
            name="adding",
            created_s=1_790_000_000.0,
            cluster="local",
            config=config,
            workspace_root=str(workspace or self.home),
            code_hash="0123456789abcdef",
            files={"data/train.jsonl": "feedbeefcafe0123"},
            git=GitState(revision="a" * 40, dirty=True),
        )
        folder = RunStore(self.home).create(record, config_yaml="name: adding\n")
        journal = JournalWriter([folder.journal], stream="1-worker-1", attempt=1)
        _report(journal, result, what=what, state=state, prompts=prompts, dtype=computed_in)
        return run_id

    def config(self, what: str, **sections: Any) -> dict[str, Any]:
        values: dict[str, Any] = {
            "name": "adding",
            "model": "tiny-llama",
            "method": "lora" if what == "adapter" else "full",
            "data": {"train": "data/train.jsonl", "eval": "s3://bucket/eval.parquet"},
            **sections,
        }
        return TrainingConfig.model_validate(values).model_dump(mode="json")

    def export(
        self, run_id: str, path: Path | str | None, to: str = "merged", **more: Any
    ) -> Export:
        """In this process, which has loaded torch: a new one takes seconds for that."""
        options = Options(to=to, path=None if path is None else str(path), **more)
        return export_run(Run(self.backend, run_id), options, do=_here)

    def export_apart(
        self, run_id: str, path: Path | str | None, to: str = "merged", **more: Any
    ) -> Export:
        """In a process of its own, as for a user."""
        options = Options(to=to, path=None if path is None else str(path), **more)
        return export_run(Run(self.backend, run_id), options)


def _here(job: ExportJob, *, progress: Progress | None) -> ExportLine:
    from llmops_kernel.export.work import run

    # As it arrives in the other process.
    sent = ExportJob.model_validate_json(job.model_dump_json())
    return run(sent, progress or (lambda _: None))


def _report(
    journal: JournalWriter,
    result: Path | str | None,
    *,
    what: str,
    state: Any,
    prompts: Sequence[str],
    dtype: str,
) -> None:
    journal.emit(
        StartEvent(
            total_steps=6,
            num_workers=1,
            global_batch_size=4,
            device="a CPU",
            dtype=dtype,
            num_rows=64,
            num_eval_rows=8,
            versions={"torch": "2.13.0", "peft": "0.21.2"},
        )
    )
    for step in range(1, 7):
        journal.emit(StepEvent(step=step, loss=4.0 - step / 2))
    samples = tuple({"prompt": one, "prediction": "7.", "reference": "7."} for one in prompts)
    metrics = {"eval_loss": 1.25, "exact_match": 0.5}
    journal.emit(EvalEvent(step=6, metrics=metrics, num_rows=8, samples=samples))
    if what == "checkpoint":
        journal.emit(CheckpointEvent(step=6, path=str(result)))
    elif result is not None:
        journal.emit(OutputEvent(path=str(result), what=what, size_bytes=1))
    if state not in ("RUNNING", "PENDING"):
        journal.emit(EndEvent(state=state, last_step=6))
    journal.close()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    return Store(tmp_path / "home")


@pytest.fixture(scope="session")
def adapter_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns the folder of an adapter of a catalogue model, saved by PEFT as a run does.

    `std`: of its random weights; how much it changes.
    """
    made: dict[tuple[str, ...], Path] = {}

    def make(base: str, std: float = 0.3, targets: tuple[str, ...] = ()) -> Path:
        if (base, *targets) not in made:
            folder = tmp_path_factory.mktemp("adapter")
            made[base, *targets] = _save_adapter(base, folder, std=std, targets=targets)
        return made[base, *targets]

    return make


@pytest.fixture(scope="session")
def adapter(adapter_of: Callable[[str], Path]) -> Path:
    return adapter_of("tiny-llama")


def _save_adapter(base: str, folder: Path, *, std: float, targets: tuple[str, ...]) -> Path:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from llmops_kernel.models.catalogue import prepare

    source = str(prepare(base))
    names = list(targets) or "all-linear"
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=names, task_type="CAUSAL_LM")
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)  # Before PEFT draws lora_A: some random adapters make near ties.
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(source), lora)
        for name, weight in model.named_parameters():
            if (
                "lora_B" in name or "lora_embedding_A" in name
            ):  # Zero before training: such an adapter would change nothing.
                weight.normal_(std=std)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def full_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a full fine-tune, as the Trainer saves it: without a cache in its config."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from llmops_kernel.models.catalogue import prepare

    folder = tmp_path_factory.mktemp("full")
    source = str(prepare("tiny-llama"))
    model = AutoModelForCausalLM.from_pretrained(source)
    model.config.use_cache = False
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


def greedy(
    folder: Path | str, prompts: list[str], *, adapter: Path | None = None, max_tokens: int = 24
) -> list[str]:
    """Answer as the run did: base and adapter apart, computed in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, str(adapter))
    tokenizer = AutoTokenizer.from_pretrained(str(adapter or folder))
    answers = []
    for prompt in prompts:
        ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
        made = model.eval().generate(input_ids=ids, do_sample=False, max_new_tokens=max_tokens)
        answers.append(tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))
    return answers


def read_front(card: str) -> dict[str, Any]:
    import yaml

    found = yaml.safe_load(card.split("---")[1])
    assert isinstance(found, dict)
    return found


def manifest(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "llmops-export.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A tiny model's threads wait for each other longer than they work, most on busy machines."""
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
