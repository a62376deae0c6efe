"""Merge a PEFT adapter into its base model, whatever the adapter is of and whatever is tied."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from llmops_kernel.models.catalogue import is_catalogue_name
from llmops_kernel.models.source import looks_like_hub_id

_EXPECTED = (
    "Input and output embeddings are no longer tied",
    "Model with `tie_word_embeddings=True` and the tied_target_modules",
)
"""The beginnings of PEFT's warnings about what is done here on purpose."""


def merged(model: Any) -> Any:
    """Return the base model of a PEFT model with the adapter merged in. The given one is used up.

    A weight that two layers share, such as that of embedding and output layer, is copied where an
    adapter of one of them changes it: the other layer would get the change too. The model's config
    says then that the embeddings are not tied, so that both are saved.
    """
    _untie(model)
    with warnings.catch_warnings():
        for text in _EXPECTED:
            warnings.filterwarnings("ignore", message=text)
        base = model.merge_and_unload()
    _correct_config(base)
    return base


def _untie(model: Any) -> None:
    """Give each layer with an adapter a weight of its own."""
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer

    users = Counter(
        id(weight) for module in model.modules() for weight in module._parameters.values()
    )
    for module in model.modules():
        if not isinstance(module, BaseTunerLayer):
            continue
        layer = module.get_base_layer()
        weight = getattr(layer, "weight", None)
        if isinstance(weight, torch.nn.Parameter) and users[id(weight)] > 1:
            users[id(weight)] -= 1
            copy = weight.detach().clone()
            layer.weight = torch.nn.Parameter(copy, requires_grad=weight.requires_grad)


def _correct_config(model: Any) -> None:
    """Write into the config whether input and output embeddings are tied."""
    try:
        first, last = model.get_input_embeddings(), model.get_output_embeddings()
    except (AttributeError, NotImplementedError):  # A model of the hook `build_model`.
        return
    weights = [getattr(layer, "weight", None) for layer in (first, last)]
    if weights[0] is None or weights[1] is None or weights[0] is weights[1]:
        return
    for config in {
        id(settings): settings for settings in (model.config, model.config.get_text_config())
    }.values():
        if getattr(config, "tie_word_embeddings", False):
            config.tie_word_embeddings = False


# --- Difference between the logits of two models ---


EXACT: Final = 1e-3
"""Difference that is allowed in float32, where sums in another order give 1e-6."""
COMPUTED: Final = 0.03
"""Allowed for the same weights in 16 bits, or for weights rounded to the 11 bits of float16."""
ROUNDED: Final = 0.1
"""Allowed for weights rounded to 8 bits (bfloat16, Q8_0): 0.5 to 3 % in a model of some dozens
of layers. A lost or doubled adapter gives what it was trained for, which is more."""


def probe(rows: Sequence[Sequence[int]], *, vocabulary: int, most: int = 32) -> list[int]:
    """Return a few token ids to ask a model with: the ends of some rows, then other tokens.

    Of rows that were trained on, as an adapter of an embedding changes the tokens that it has seen.
    """
    seen = [token for row in rows[:4] for token in row[-most // 4 :]]
    count = max(4, most - len(seen))
    spread = [(2 * number + 1) * vocabulary // (2 * count) for number in range(count)]
    return [token for token in (*seen, *spread) if 0 <= token < vocabulary][:most]


def logits_of(model: Any, ids: Sequence[int], device: Any) -> Any:
    """Return the logits at each token, float32 on the CPU, as (tokens, vocabulary).

    Of a model without a head its last states, of one with a head on the last token that one's.
    """
    import torch

    inputs = torch.tensor([list(ids)], device=device)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            output = model(input_ids=inputs, attention_mask=torch.ones_like(inputs))
            logits = output.logits if hasattr(output, "logits") else output.last_hidden_state
    finally:
        model.train(was_training)
    return logits[0].float().cpu()


def difference(before: Any, after: Any) -> float:
    """Return the size of the difference, as a share of the size of `before`; infinite for NaN.

    The mean of a row is left out: it changes no probability, and may be most of the size.
    """
    import torch

    if before.shape[-1] != after.shape[-1]:  # A vocabulary padded by a format.
        width = min(before.shape[-1], after.shape[-1])
        before, after = before[..., :width], after[..., :width]
    means = 0.0 if before.shape[-1] == 1 else 1.0
    old, new = (
        logits.double() - means * logits.double().mean(-1, keepdim=True)
        for logits in (before, after)
    )
    share = float((old - new).norm() / old.norm().clamp(min=1e-12))
    return share if torch.isfinite(torch.tensor(share)) else float("inf")


# --- Portable files of a written model ---


ADAPTER_CONFIG, CONFIG, TOKENIZER_CONFIG = (
    "adapter_config.json",
    "config.json",
    "tokenizer_config.json",
)
HEAD_FILE: Final = "head.json"
"""Beside a result with a head of its own: what `from_pretrained` needs to make it."""
BESIDE: Final = (
    HEAD_FILE,
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    "2_Normalize/config.json",
)
"""Files of a result that tell how its model is used, besides its own config."""
_OF_A_LOADING = ("is_local", "local_files_only", "name_or_path", "_name_or_path")
"""Keys that say how a tokenizer or a model was loaded, and nothing about itself."""


def head_options(folder: Path) -> dict[str, Any]:
    """Return what `from_pretrained` needs to make the head of a result; empty without one."""
    return _read(folder / HEAD_FILE)


def portable_name(model_id: str, source: str) -> str:
    """Return the name of a model that a reader on another machine can use.

    That of the catalogue or the hub; of a folder the hub id that its config has, else its own name.
    """
    folder = Path(source)
    if is_catalogue_name(model_id) or not folder.is_dir():
        return model_id
    base_name = str(_read(folder / CONFIG).get("_name_or_path") or "")
    is_hub_id = looks_like_hub_id(base_name) and not Path(base_name).exists()
    return base_name if is_hub_id else folder.resolve().name


def make_portable(folder: Path, *, base: str = "", source: str = "") -> None:
    """Correct the files of a written model or adapter.

    `base`: portable name of the model that an adapter is of. `source`: folder of the model that
    was trained; its config says whether answers are computed with a cache, as they usually are.
    """
    _edit(folder / TOKENIZER_CONFIG, remove=_OF_A_LOADING)
    if "use_cache" in _read(folder / CONFIG):
        uses_cache = _read(Path(source) / CONFIG).get("use_cache", True) if source else True
        _edit(folder / CONFIG, add={"use_cache": bool(uses_cache)})
    _edit(folder / CONFIG, remove=_OF_A_LOADING)
    if base:
        _edit(folder / ADAPTER_CONFIG, add={"base_model_name_or_path": base})


def _edit(path: Path, *, remove: tuple[str, ...] = (), add: dict[str, Any] | None = None) -> None:
    current = _read(path)
    if not current:
        return
    edited = {**{k: v for k, v in current.items() if k not in remove}, **(add or {})}
    if edited != current:
        path.write_text(json.dumps(edited, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def _read(path: Path) -> dict[str, Any]:
    """Return the object in a file; empty where there is none."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
