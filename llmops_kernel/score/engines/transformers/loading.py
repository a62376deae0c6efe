"""Loads a model and its tokenizer with Transformers."""

from __future__ import annotations

from dataclasses import dataclass
from pickle import UnpicklingError
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from llmops_kernel.errors import LLMOpsError, ModelError
from llmops_kernel.models.answer_ends import answer_ends
from llmops_kernel.models.source import pickle_refused
from llmops_kernel.score.engines.checkpoint import check_memory, load_error
from llmops_kernel.score.engines.prompts import context_length
from llmops_kernel.score.engines.protocol import EngineSpec


@dataclass(frozen=True)
class Loaded:
    """A model that answers, and what is known about it."""

    model: Any
    tokenizer: Any
    context: int
    """Longest prompt with its answer, in tokens."""
    eos: frozenset[int]
    """Tokens that end an answer."""
    vocabulary: int
    """Tokens that the model gives a probability to."""
    device: torch.device


def load(spec: EngineSpec) -> Loaded:
    """Load the model. Raises ModelError."""
    device = _device(spec)
    free = torch.cuda.mem_get_info()[0] if device.type == "cuda" else None
    check_memory(spec, free)
    try:
        return _load(spec, device)
    except LLMOpsError:
        raise
    except UnpicklingError as error:
        raise pickle_refused(spec.model) from error
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, MemoryError) as error:
        raise load_error(spec, error) from error


def _device(spec: EngineSpec) -> torch.device:
    if spec.num_gpus <= 0:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ModelError(
            f"The engine asks for {spec.num_gpus:g} GPU, and torch sees none on this node.",
            remedy="install a build of torch for the node's GPUs, or score on CPUs",
        )
    return torch.device("cuda")


def _load(spec: EngineSpec, device: torch.device) -> Loaded:
    origin: dict[str, Any] = {
        "revision": spec.revision,
        "trust_remote_code": spec.trust_remote_code,
    }
    config = AutoConfig.from_pretrained(spec.model, **origin)
    text = config.get_text_config()
    context = context_length(getattr(text, "max_position_embeddings", None), spec.max_model_len)
    tokenizer = AutoTokenizer.from_pretrained(spec.model, **origin)
    model = AutoModelForCausalLM.from_pretrained(
        spec.model, config=config, dtype=getattr(torch, spec.dtype), **origin
    )
    model.eval().requires_grad_(False).to(device)
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        context=context,
        eos=frozenset(answer_ends(tokenizer, model.generation_config)),
        vocabulary=text.vocab_size,
        device=device,
    )
