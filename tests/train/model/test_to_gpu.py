"""Moving a model with several cores, to the host's own memory: the GPU itself is in tests/gpu."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from llmops_kernel.train.model.kept import move

HERE = torch.device("cpu")


class Odd(nn.Module):  # type: ignore[misc]
    """Ties, two views of one storage, a stride, no elements, several types, none of it aligned."""

    def __init__(self) -> None:
        super().__init__()
        both = torch.randn(11, 7)
        self.first, self.second = nn.Parameter(both[:5]), nn.Parameter(both[5:])
        self.turned = nn.Parameter(torch.randn(6, 9).t(), requires_grad=False)
        self.tied = self.first
        self.register_buffer("none", torch.empty(0))
        self.register_buffer("counts", torch.arange(13), persistent=False)
        self.register_buffer("short", torch.randn(1021).to(torch.bfloat16))


def test_the_same_objects_have_equal_values_in_other_memory() -> None:
    model = Odd()
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    before = {name: (id(one), one.data_ptr(), one.detach().clone()) for name, one in named.items()}
    kept = [one.detach() for one in named.values()]  # What moved is not freed: places differ.
    move(model, HERE)
    assert {**dict(model.named_parameters()), **dict(model.named_buffers())}.keys() == named.keys()
    for name, one in named.items():
        identity, place, values = before[name]
        assert getattr(model, name) is one
        assert id(one) == identity
        assert one.numel() == 0 or one.data_ptr() != place
        assert torch.equal(one, values)
    assert model.tied is model.first
    assert model.turned.stride() == (1, 9)
    assert not model.turned.requires_grad
    assert model.first.untyped_storage().data_ptr() == model.second.untyped_storage().data_ptr()
    del kept


@pytest.mark.parametrize("size", [1, 4 << 20, (32 << 20) - 4, 32 << 20, (32 << 20) + 4, 71 << 20])
@pytest.mark.parametrize("workers", [1, 64])
def test_any_size_is_copied_whole(size: int, workers: int) -> None:
    one = torch.randint(256, (size,), dtype=torch.uint8)
    model = nn.ParameterList([nn.Parameter(one, requires_grad=False), nn.Parameter(torch.ones(3))])
    move(model, HERE, local_world_size=workers)
    assert model[0].data_ptr() != one.data_ptr()
    assert torch.equal(model[0], one)
    assert model[1].tolist() == [1, 1, 1]


def test_training_the_moved_model_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(300, 200), path)
    content = path.read_bytes()
    model = torch.load(path, mmap=True, weights_only=False)
    move(model, HERE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2, 300)).sum().backward()
    optimizer.step()
    assert path.read_bytes() == content
    assert not torch.equal(model.weight, torch.load(path, weights_only=False).weight)
