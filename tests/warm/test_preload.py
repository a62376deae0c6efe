"""What the fork server must not import, though a library does where it is installed."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import importlib.util, sys
from llmops_kernel.warm.preload import preload

loaded = preload(["peft", "transformers.trainer"])
assert not loaded["missing"], loaded
assert "bitsandbytes" not in sys.modules, "imported in advance"

from transformers import LlamaConfig, LlamaForCausalLM
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.methods import prepare_lora

sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(vocab_size=32, num_key_value_heads=2, **sizes))
prepare_lora(model, TrainingConfig(model="tiny-llama", data="rows.jsonl"))
assert "bitsandbytes" not in sys.modules, "imported for LoRA"

from peft.import_utils import is_bnb_4bit_available
from transformers.utils import is_bitsandbytes_available

assert is_bnb_4bit_available()
assert is_bitsandbytes_available()
print("found when it is wanted:", "bitsandbytes" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.timeout(300)
def test_bitsandbytes_is_imported_for_qlora_only() -> None:
    """PEFT imports it, it initialises CUDA, and then no process could be forked."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert "found when it is wanted: True" in found.stdout


COLLECTIONS = """\
import gc
from llmops_kernel.warm.preload import without_collections

class Cycle:
    def __init__(self): self.own = self

seen = []
gc.callbacks.append(lambda phase, info: seen.append(phase))
try:
    with without_collections():
        kept = [Cycle() for _ in range(50_000)]
        raise ImportError("broken")
except ImportError:
    assert not seen and gc.isenabled()
assert gc.get_freeze_count() > 50_000
assert gc.collect(0) == 0  # The first search does not begin with what was imported.
Cycle()
assert gc.collect() >= 1  # What comes later is found as ever.

gc.disable()
with without_collections():
    assert not gc.isenabled()
assert not gc.isenabled()
"""


def test_no_garbage_is_looked_for_while_modules_are_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECTIONS], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


MUON = """\
import importlib, json, sys
import torch
from llmops_kernel.warm.preload import MUON, preload

before = torch.compile
if sys.argv[1] == "later":
    assert not preload(["deepspeed", MUON])["missing"]
    assert torch.compile is before
    assert "torch._inductor.compile_fx" not in sys.modules, "the compiler was imported in advance"
importlib.import_module(MUON)
from deepspeed.runtime.zero.muon import muon_optimizer, original_muon

torch.manual_seed(5)
update = muon_optimizer.muon_update(torch.randn(8, 16), torch.zeros(8, 16))
from torch._dynamo.utils import counters

names = [name for name, value in vars(original_muon).items()
         if hasattr(value, "_torchdynamo_orig_callable") and not name.startswith("__")]
print(json.dumps({
    "update": update.float().flatten().tolist(),
    "graphs": counters["stats"]["unique_graphs"],
    "breaks": sum(counters["graph_break"].values()),
    "decorated": sorted(names),
}))
"""

DECORATORS = """\
import torch
from llmops_kernel.warm.preload import without_compiler

def double(x): return x * 2
try:
    with without_compiler():
        plain, factory = torch.compile(double), torch.compile(backend="eager", fullgraph=True)
        made = factory(double)
        layer = torch.compile(torch.nn.Linear(2, 2), backend="eager")
        raise ImportError("broken")
except ImportError:
    pass
assert made.__name__ == "double"
assert type(layer).__name__ == "OptimizedModule"  # No function: decorated at once.
assert torch.equal(made(torch.ones(3)), torch.full((3,), 2.0))
from torch._dynamo.utils import counters
assert counters["stats"]["unique_graphs"] == 1
assert hasattr(torch.compile(double), "_torchdynamo_orig_callable")
"""


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.timeout(300)
def test_muon_is_compiled_as_ever_when_it_is_first_called() -> None:
    """DeepSpeed decorates it when it is imported, which would import the compiler each time."""
    at_once, later = (json.loads(_output(MUON, when)) for when in ("at once", "later"))
    if any(map(math.isnan, at_once["update"])):
        pytest.skip("PyTorch's compiler gives NaN here in any case: 2.13 does with AVX2's code")
    # It computes in bfloat16, which not every processor rounds alike in two processes.
    assert later.pop("update") == pytest.approx(at_once.pop("update"), abs=0.02)
    assert later == at_once
    assert later["graphs"] >= 1
    assert len(later["decorated"]) == 3


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.timeout(300)
def test_each_way_to_decorate_with_the_compiler() -> None:
    assert _output(DECORATORS) == ""


DRIVER = """
static int ready = 0;
int cuInit(unsigned flags) { ready = 1; return 0; }
int cuDeviceGetCount(int *count) { if (!ready) return 3; *count = 1; return 0; }
"""
ASKS = """
import ctypes, sys
from llmops_kernel.warm.preload import unsafe
print(unsafe() or "safe", end="; ")
driver = ctypes.CDLL(sys.argv[1])
print(unsafe() or "safe", end="; ")
driver.cuInit(0)
print(unsafe())
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_process_is_unsafe_once_cuda_is_initialised_not_when_its_driver_is_loaded(
    tmp_path: Path,
) -> None:
    """The driver is one of the test, with the two functions and the answers of NVIDIA's.

    On a machine with a GPU the management library loads the driver's parts and opens all devices.
    """
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so.580.159"
    source.write_text(DRIVER)
    compiler = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run([*compiler, str(source)], check=True)
    assert _output(ASKS, str(library)) == "safe; safe; an imported module initialised CUDA"


def _output(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1] if done.stdout else ""
