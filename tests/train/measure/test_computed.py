"""What a batch makes a model execute (`hfu`), against PyTorch's counter and numbers by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.metrics.model_work import EAGER, Computed, Kernel, Kernels
from llmops_kernel.train.data.collate import Collator
from llmops_kernel.train.data.examples import IGNORED, Example, pack
from llmops_kernel.train.measure.step_flops import StepFlops
from llmops_kernel.train.measure.step_timer import StepCounts, StepTimer
from llmops_kernel.train.verify import kernels
from tests.train.measure.families import SIZES, build, with_lora

CPU = torch.device("cpu")
HEADS, SIZE, LAYERS = 4, 16, 2
BATCHES: dict[str, tuple[tuple[int, ...], dict[str, bool]]] = {
    "equal": ((40, 40), {}),
    "padded": ((37, 9, 21), {}),
    "at labels": ((37, 9, 21), {"label_logits": True}),
    "joined": ((37, 9, 21), {"padding_free": True, "label_logits": True}),
}
FLASH = Kernels(*[Kernel("own", recomputes=True)] * 2)
SKIPPING = Kernels(
    plain=Kernel("earlier", recomputes=True), masked=Kernel("square", recomputes=True)
)


def rows(*lengths: int) -> list[Example]:
    """Of each row the second half has labels."""
    ids = [[3 + n % 90 for n in range(length)] for length in lengths]
    return [Example(one, [IGNORED] * (len(one) // 2) + one[len(one) // 2 :]) for one in ids]


def batch_of(lengths: tuple[int, ...], **options: bool) -> dict[str, Any]:
    return Collator(pad_token_id=0, **options)(rows(*lengths))


def counted(batch: dict[str, Any]) -> tuple[StepCounts, dict[str, Any]]:
    """The counts of a step of this batch, and what the model gets."""
    timer = StepTimer()
    timer.add_batch(batch, 0.0)
    return timer.reduce(device=CPU, stop=False), batch


def pytorchs_count(model: Any, batch: dict[str, Any]) -> int:
    """FLOPs that a real step of this batch executes, by PyTorch's own counter."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(**batch).loss.backward()
    return int(counter.get_total_flops())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model is counted once for all of these tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    ("name", "method", "layers"),
    [
        *(("llama", "full", layers) for layers in (2, 4, 16)),
        *(("llama", "lora", layers) for layers in (2, 4, 16)),
        ("llama", "every other layer", 7),
        ("deepseek_v3", "lora", 5),
        ("gpt2", "lora", 5),
    ],
)
def test_checkpointing_costs_what_pytorch_counts_at_any_depth(
    name: str, method: str, layers: int, tmp_path: Path
) -> None:
    """Counted of few layers; a real step is of all, which do not need the same."""
    depth = {"n_layer": layers} if name == "gpt2" else {"num_hidden_layers": layers}
    model = build(name, device="cpu", **depth)
    if method == "lora":
        model = with_lora(model)
    elif method != "full":
        model = with_lora(model, [f"{n}.self_attn.q_proj" for n in range(1, layers, 2)])
    flops = StepFlops(model, checkpointing=True, kernels=EAGER, cache=tmp_path)
    assert flops.check() is None
    model.activation_checkpointing_enable({"use_reentrant": False})
    counts, batch = counted(batch_of((40, 40)))
    assert flops(counts).executed == pytest.approx(pytorchs_count(model, batch), rel=0.001)


def test_a_count_is_of_the_linear_layers_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZeRO-3's repeat a product more of each layer, and stay until the process ends."""
    from deepspeed.runtime.zero.linear import zero3_linear_wrap

    options: dict[str, Any] = {"checkpointing": True, "kernels": EAGER, "cache": tmp_path}
    counts, batch = counted(batch_of((40, 40)))
    StepFlops(build("llama", device="cpu"), **options).check()
    down = LAYERS * 2 * SIZES["hidden_size"] * SIZES["intermediate_size"] * 80
    later = StepFlops(build("llama", device="cpu"), **options, replaces_linear=True)
    plain = StepFlops(build("llama", device="cpu"), **options)(counts).executed or 0
    monkeypatch.setattr(torch.nn.functional, "linear", zero3_linear_wrap)
    earlier = StepFlops(build("llama", device="cpu"), **options)
    for flops in (later, earlier):
        model = build("llama", device="cpu")
        assert flops.check() is None
        model.activation_checkpointing_enable({"use_reentrant": False})
        assert flops(counts).executed == pytest.approx(pytorchs_count(model, batch), rel=1e-6)
        assert flops(counts).executed == pytest.approx(plain + down)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["stored", "checkpointing"])
@pytest.mark.parametrize("adapt", [lambda model: model, with_lora], ids=["full", "lora"])
def test_eager_attention_executes_what_pytorch_counts(
    adapt: Any, checkpointing: bool, cache: Path
) -> None:
    model = adapt(build("llama", device="cpu"))
    flops = StepFlops(model, checkpointing=checkpointing, kernels=EAGER, cache=cache)
    assert flops.check() is None
    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    for lengths, options in BATCHES.values():
        counts, batch = counted(batch_of(lengths, **options))
        found = flops(counts).executed
        assert found == pytest.approx(pytorchs_count(model, batch), rel=0.005)
        assert (found or 0) > (flops(counts).required or 0)


@pytest.mark.parametrize(
    ("name", "known", "pairs"),
    [
        # Two rows of 40: half of the square without a mask.
        ("equal", SKIPPING, 2 * 40 * 40 / 2),
        # A mask for the padding: the square of the padded width, 40, in three rows.
        ("padded", SKIPPING, 3 * 40 * 40),
        # The same joined: 67 tokens of three rows, padded to 72.
        ("joined", SKIPPING, 72 * 72),
        ("joined", FLASH, (37**2 + 9**2 + 21**2) / 2),
        ("padded", FLASH, (37**2 + 9**2 + 21**2) / 2),
    ],
)
def test_fused_attention_by_hand(name: str, known: Kernels, pairs: float, cache: Path) -> None:
    """Two products there and five back, 2 FLOPs for each of a head's numbers and each pair.

    PyTorch's counter has none of them on a CPU, so that it gives the rest.
    """
    model = build("llama", device="cpu")
    flops = StepFlops(model, kernels=known, cache=cache)
    assert flops.check() is None
    model.set_attn_implementation("sdpa")
    lengths, options = BATCHES[name]
    counts, batch = counted(batch_of(lengths, **options))
    attention = LAYERS * (2 + 5) * 2 * HEADS * SIZE * pairs
    assert flops(counts).executed == pytorchs_count(model, batch) + attention


def test_windows_are_left_out_where_the_kernel_does(cache: Path) -> None:
    """One row of 64, two layers of a window of 16."""
    model = build("mistral", device="cpu", sliding_window=16)
    [counts, _] = counted(batch_of((64,)))
    found = {}
    for name, known in {"eager": EAGER, "flash": FLASH, "sdpa": SKIPPING}.items():
        flops = StepFlops(model, kernels=known, cache=cache)
        flops.check()
        found[name] = flops(counts).executed or 0
    width = LAYERS * 2 * HEADS * SIZE
    assert found["sdpa"] - found["eager"] == width * 64 * 64  # One more product of the square.
    expected = width * (7 * (16 * 64 - 16**2 / 2) - 6 * 64 * 64)
    assert found["flash"] - found["eager"] == expected


def test_packed_rows_have_a_mask_and_a_row_alone_has_none() -> None:
    packed = pack(rows(30, 20), max_length=64)
    counts, _ = counted(Collator(pad_token_id=0)(packed))
    assert counts.computed == Computed(56, 56, masked_squares=56 * 56, plain_squares=0)
    counts, _ = counted(Collator(pad_token_id=0)(pack(rows(56), max_length=64)))
    assert counts.computed == Computed(56, 56, masked_squares=0, plain_squares=56 * 56)


def test_the_batches_of_a_step_are_summed_and_those_of_the_next_are_not() -> None:
    timer = StepTimer()
    for lengths in ((8, 8), (8, 5)):
        timer.add_batch(batch_of(lengths), 0.0)
    first = timer.reduce(device=CPU, stop=False)
    assert first.computed == Computed(32, 32, masked_squares=128, plain_squares=128)
    assert (first.tokens, first.sum_squared_lengths) == (29, 3 * 64 + 25)
    assert timer.reduce(device=CPU, stop=False).computed is None


def test_what_a_kernel_computes_is_known_or_none() -> None:
    model = build("qwen3", device="cpu")
    assert kernels(model, "eager", "float32", CPU) == EAGER
    assert kernels(model, "flash_attention_2", "bfloat16", CPU) == FLASH
    assert kernels(model, "flex_attention", "float32", CPU) is None
    assert kernels(model, "sdpa", "float32", CPU) in (SKIPPING, EAGER, None)
    dropping = build("llama", device="cpu", attention_dropout=0.1)
    assert kernels(dropping, "sdpa", "float32", CPU) in (EAGER, None)  # Not fused on a CPU.
    latent = build("deepseek_v3", device="cpu")
    assert kernels(latent, "sdpa", "float32", CPU) is None
