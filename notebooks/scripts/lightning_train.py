"""A Lightning script. Two lines are for the run: the import and `callbacks=[TrackCallback()]`."""

import argparse

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from llmops_kernel.integrations.lightning import TrackCallback


class Regression(lightning.LightningModule):
    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
        )

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layers(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    inputs = torch.randn(640, 8)
    data = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=32)
    lightning.Trainer(
        max_steps=options.steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[TrackCallback(tokens=lambda batch: len(batch[0]))],
    ).fit(Regression(options.lr), data)
