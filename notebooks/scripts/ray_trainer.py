"""Ray's documented TorchTrainer with a Transformers Trainer, on a small Llama and real text.

Two lines are for the run: the import and `callbacks=[TrackCallback()]`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import ray.train.huggingface.transformers
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from torch.utils.data import Dataset
from transformers import (
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

from llmops_kernel.integrations.transformers import TrackCallback


class Texts(Dataset):
    def __init__(self, path: Path, tokenizer: Any) -> None:
        rows = [json.loads(line) for line in path.read_text().splitlines()[:256]]
        self.rows = [tokenizer(row["description"], truncation=True, max_length=64) for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


def train_func(config: dict[str, Any]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(config["model"])
    model = LlamaForCausalLM(LlamaConfig.from_pretrained(config["model"]))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="out",
            max_steps=config["steps"],
            per_device_train_batch_size=4,
            learning_rate=config["lr"],
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
        ),
        train_dataset=Texts(Path(config["data"]), tokenizer),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        callbacks=[TrackCallback()],
    )
    trainer = ray.train.huggingface.transformers.prepare_trainer(trainer)
    trainer.train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="folder of a small Llama")
    parser.add_argument("--data", default="data/menu-train.jsonl")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=1)
    options = vars(parser.parse_args())
    options["data"] = str(Path(options["data"]).resolve())
    TorchTrainer(
        train_func,
        train_loop_config=options,
        scaling_config=ScalingConfig(num_workers=options["workers"], use_gpu=False),
    ).fit()
