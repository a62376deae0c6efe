"""A plain PyTorch script with DistributedDataParallel, as `torchrun` starts it.

Three lines are for the run: the import, `track.step` and `track.should_stop`.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from llmops_kernel import track


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, options.steps + 1):
        inputs = torch.randn(64, 8, generator=generator)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        track.step(step=step, loss=loss, tokens_per_worker=64, learning_rate=options.lr)
        if track.should_stop():
            break


if __name__ == "__main__":
    main()
