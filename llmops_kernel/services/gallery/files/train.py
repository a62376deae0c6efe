"""A language model of characters in plain PyTorch.

The import of `track` and its two calls are all that a run needs: they report each step and stop the
training when you ask for it. Without a run they do nothing: `python train.py` works as well.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

from llmops_kernel import track

LENGTH, BATCH = 64, 16


class CharacterModel(nn.Module):
    """Predicts the next character from those before it."""

    def __init__(self, size: int, width: int = 96) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, size)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """Return logits: batch x length x number of characters."""
        states, _ = self.memory(self.embedding(characters))
        logits: torch.Tensor = self.head(states)
        return logits


def batch_of(numbers: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return random pieces of the text, one character longer than the model reads."""
    starts = torch.randint(len(numbers) - LENGTH, (BATCH,), generator=generator)
    return torch.stack([numbers[start : start + LENGTH + 1] for start in starts.tolist()])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data/menu-train.txt")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()

    text = Path(options.data).read_text(encoding="utf-8")
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    numbers = torch.tensor([alphabet[character] for character in text])
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = CharacterModel(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    for step in range(1, options.steps + 1):
        pieces = batch_of(numbers, generator)
        logits = model(pieces[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        track.step(step=step, loss=loss, tokens=BATCH * LENGTH, learning_rate=options.lr)
        if track.should_stop():
            break


if __name__ == "__main__":
    main()
