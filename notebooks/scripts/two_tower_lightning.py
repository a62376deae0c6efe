"""Two towers in PyTorch Lightning: the name of a dish, as a guest types it, finds its description.

Each tower crosses (DCN-v2, arxiv.org/abs/2008.13535, equation 1) a text's vector of a language
model, embedded ids and dense numbers. The loss is InfoNCE (arxiv.org/abs/1807.03748) among the
dishes of all workers. `llmops submit two-tower.script.yaml` in `notebooks` runs it.
"""

import argparse
import json
import math
import os
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoModel, AutoTokenizer

from llmops_kernel import track
from llmops_kernel.integrations.lightning import TrackCallback
from llmops_kernel.models import catalogue

# The embedding tables of each tower, and how wide they are; a query is typed on a page of the menu.
FEATURES = {"query": {"course": 8}, "item": {"cuisine": 8, "course": 8, "diet": 4, "allergens": 8}}
NUM_DENSE = 3
VECTOR = 64


def read(path: Path, seen: set[int]) -> list[dict[str, Any]]:
    """Return the rows; `seen`: the dishes of the training rows."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["dish"] = int(row["id"].split("-")[1])
        row |= {"query": row["name"], "item": row["description"], "is_new": row["dish"] not in seen}
        row["tags"] |= {name: [row["tags"][name]] for name in ("cuisine", "course")}
    return rows


class Collate:
    """Makes a batch: of each tower tokens, dense numbers, and ids, of which 0 is none."""

    def __init__(self, tokenizer: Any, rows: list[dict[str, Any]]) -> None:
        self.tokenizer, self.ids = tokenizer, dict[str, dict[str, int]]()
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        for table in FEATURES["item"]:
            names = sorted({name for row in rows for name in row["tags"][table]})
            self.ids[table] = {name: number for number, name in enumerate(names, start=1)}

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        batch: Any = {key: torch.tensor([row[key] for row in rows]) for key in ("dish", "is_new")}
        for tower, tables in FEATURES.items():
            texts = [row[tower] for row in rows]
            batch[tower] = dict(self.tokenizer(texts, padding=True, return_tensors="pt"))
            sizes = [(len(text), len(text.split()), text.count(",")) for text in texts]
            batch[tower]["dense"] = torch.tensor(sizes).float().log1p()
            for table in tables:
                known = self.ids[table]
                bags = [[known.get(name, 0) for name in row["tags"][table]] for row in rows]
                each = [torch.tensor([0, *bag]) for bag in bags]
                batch[tower][table] = pad_sequence(each, batch_first=True)
        masks = (batch[tower]["attention_mask"] for tower in FEATURES)
        return batch | {"lengths": torch.cat([mask.sum(-1) for mask in masks])}


class Tower(nn.Module):
    """A text's vector, embedded ids and dense numbers: crossed, then projected to length 1."""

    def __init__(self, text_width: int, tables: dict[str, int], ids: dict[str, Any]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(text_width)
        self.tables = nn.ModuleDict()
        for name, size in tables.items():
            self.tables[name] = nn.EmbeddingBag(1 + len(ids[name]), size, padding_idx=0, mode="sum")
        width = text_width + sum(tables.values()) + NUM_DENSE
        self.crosses = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.project = nn.Linear(width, VECTOR)

    def forward(self, text: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        ids = [table(batch[name]) for name, table in self.tables.items()]
        x = first = torch.cat([self.norm(text), *ids, batch["dense"]], dim=-1)
        for cross in self.crosses:
            x = first * cross(x) + x
        return F.normalize(self.project(x), dim=-1)


class TwoTower(lightning.LightningModule):
    """A tower of queries and one of items, around one language model."""

    def __init__(self, encoder: Any, ids: dict[str, Any], options: argparse.Namespace) -> None:
        super().__init__()
        self.strict_loading = False  # A checkpoint has only what is trained.
        self.lr, self.shape = options.lr, encoder.config
        self.has_adapter = options.encoder == "lora"
        self.encoder = encoder.requires_grad_(False)
        if self.has_adapter:
            self.encoder = get_peft_model(encoder, LoraConfig(target_modules=["q_proj", "v_proj"]))
        width = self.shape.hidden_size
        self.towers = nn.ModuleDict({name: Tower(width, of, ids) for name, of in FEATURES.items()})

    def forward(self, batch: dict[str, Any]) -> list[torch.Tensor]:
        return [tower(self.encode(batch[name]), batch[name]) for name, tower in self.towers.items()]

    def encode(self, tokens: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the mean of the last states of each text, padding left out."""
        ids, mask = tokens["input_ids"], tokens["attention_mask"]
        with torch.set_grad_enabled(self.has_adapter and torch.is_grad_enabled()):
            states = self.encoder(ids, mask, use_cache=False).last_hidden_state
        weights = mask.unsqueeze(-1)
        return (states * weights).sum(1) / weights.sum(1)

    def training_step(self, batch: dict[str, Any], index: int) -> torch.Tensor:
        """Each query is to find its item among those of all workers."""
        queries, items = self(batch)
        items = self.all_gather(items, sync_grads=True).reshape(-1, VECTOR)
        dishes = self.all_gather(batch["dish"]).reshape(-1)
        own = torch.arange(len(queries), device=self.device)
        positives = own + self.global_rank * len(queries)
        is_same = batch["dish"].unsqueeze(-1) == dishes
        is_same[own, positives] = False  # The same dish in other words is no negative.
        scores = queries @ items.T / 0.05
        return F.cross_entropy(scores.masked_fill(is_same, -math.inf), positives)

    def validation_step(self, batch: dict[str, Any], index: int) -> None:
        """Recall of new dishes among all held-out ones, which are one batch of each worker."""
        queries, items = self(batch)
        is_right = batch["dish"].unsqueeze(-1) == batch["dish"]
        found = (queries @ items.T).topk(10).indices
        recall = is_right.gather(1, found).sum(-1) / is_right.sum(-1)
        self.log("eval_recall@10", recall[batch["is_new"]].mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        trained = (name for name, weight in self.named_parameters() if weight.requires_grad)
        checkpoint["state_dict"] = {name: checkpoint["state_dict"][name] for name in trained}

    def flops(self, batch: dict[str, Any]) -> float:
        """Return what a batch needs, from which the run computes MFU.

        A weight of a Linear layer costs 2 FLOPs a token (or row), 2 more where gradients go through
        it and 2 more where it is trained; attention to earlier tokens half of that to all.
        """
        lengths, rows, shape = batch["lengths"].double(), len(batch["dish"]), self.shape
        width = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
        total = 2 * width * shape.num_attention_heads * shape.num_hidden_layers
        total *= (3 if self.has_adapter else 1) * float((lengths**2).sum())
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                passes = 3 if module.weight.requires_grad else 2 if self.has_adapter else 1
                times = float(lengths.sum()) if name.startswith("encoder") else rows
                total += 2 * passes * module.weight.numel() * times
        return total + 6 * VECTOR * rows * rows * self.trainer.world_size


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="SmolLM2-135M-Instruct", help="built-in, folder, hub id")
    parser.add_argument("--encoder", choices=("frozen", "lora"), default="frozen")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=32, help="of each worker")
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()
    lightning.seed_everything(0)
    is_built_in = catalogue.is_catalogue_name(options.model)
    source = str(catalogue.prepare(options.model)) if is_built_in else options.model
    train = read(Path("data/menu-train.jsonl"), set())
    held_out = read(Path("data/menu-eval.jsonl"), {row["dish"] for row in train})
    collate = Collate(AutoTokenizer.from_pretrained(source), train)
    encoder = AutoModel.from_pretrained(source, dtype=torch.float32)
    model = TwoTower(encoder, collate.ids, options)
    workers, local = (int(os.environ.get(n, 1)) for n in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    trainer = lightning.Trainer(
        max_steps=options.steps,
        max_epochs=-1,
        strategy="ddp" if workers > 1 else "auto",
        devices=local,
        num_nodes=workers // local,
        precision="bf16-mixed" if torch.cuda.is_available() else "32-true",
        **dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False),
        callbacks=[TrackCallback(tokens=lambda one: one["lengths"].sum(), flops=model.flops)],
    )
    rows = DataLoader(train, options.batch_size, shuffle=True, collate_fn=collate)
    test = DataLoader([collate(held_out)], None)  # One batch: each worker looks at all rows.
    if (resume := track.resume_checkpoint()) is None:
        trainer.validate(model, test)
    trainer.fit(model, rows, ckpt_path=resume)
    trainer.validate(model, test)
    trainer.save_checkpoint("two-tower.ckpt")
    track.checkpoint("two-tower.ckpt")


if __name__ == "__main__":
    main()
