"""What libraries say while a model is built: where work that was asked for is not done, an error.

They say so in a warning, and train something else.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from llmops_kernel.errors import ModelError

_NOT_DONE = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # PEFT 0.21: a second adapter, an adapter without its weights, layers that got none
        r"already found a `?peft_config`? attribute",
        r"trying to modify a model with PEFT for a second time",
        r"missing adapter keys",
        r"should not be contained in the prefix",
        r"no (module|parameter) was matched",
        r"did not match any targeted module and were ignored",
        r"but no modules were excluded",
        r"all adapters are already merged",
        r"embedding scaling will not be applied",
        r"LoRA tensor\(s\) have invalid shape",
        r"no tied modules (are added|were found)",
        # Transformers 5: weights that are not those of the files
        r"newly initialized",
        r"not initialized from the model checkpoint",
        r"were not used when initializing",
        r"but both are present in the checkpoints with different values",
        r"using a model of type .* to instantiate a model of type",
        # Of any: `specified but will be ignored`, `is not supported. Ignoring`
        r"\bwill be ignored\b",
        r"not supported[^.]*[.,:;] *ignoring",
    )
)
_DONE = re.compile(
    "|".join(
        (
            r"tied layer is part of the adapter",
            r"tied_target_modules",
            r"_pattern keys did not match any targeted module and were ignored: \['\.\*\\",
        )
    )
)
"""Said of tied embeddings, which `models.merging` merges rightly, and of patterns that PEFT itself
adds for fused experts (`peft/utils/transformers_weight_conversion.py`): no config of ours has any.
"""
_LIBRARIES = ("transformers", "peft", "accelerate", "deepspeed", "DeepSpeed", "bitsandbytes")


def refusal(text: str) -> bool:
    """Return whether a library says there that it does not do what it was asked for."""
    return any(pattern.search(text) for pattern in _NOT_DONE) and not _DONE.search(text)


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def listening(model_id: str) -> Iterator[None]:
    """Raise ModelError at the end of the block if a library has refused something in it.

    Other warnings are shown as ever.
    """
    listener = _Listener()
    loggers = [logging.getLogger(name) for name in _LIBRARIES]
    for one in loggers:
        one.addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for one in loggers:
            one.removeHandler(listener)
    found = [str(said.message) for said in caught]
    for text in (*found, *listener.texts):
        if refusal(text):
            raise _refused(model_id, " ".join(text.split())[:600])
    for said in caught:
        if not _DONE.search(str(said.message)):
            warnings.warn_explicit(said.message, said.category, said.filename, said.lineno)


def check_weights(model_id: str, info: Mapping[str, Any]) -> str:
    """Return what is to be said of a model's files, by the loading info of `from_pretrained`.

    Raises ModelError for weights that the files do not have, which are random.
    """
    missing = sorted(info.get("missing_keys") or ())
    mismatched = sorted(str(one[0]) for one in info.get("mismatched_keys") or ())
    errors = list(info.get("error_msgs") or ())
    if missing or mismatched or errors:
        first = (missing or mismatched or errors)[0]
        what = "is not in its files" if missing else "has another shape in its files"
        raise ModelError(
            f"{len(missing) + len(mismatched) + len(errors)} weights of {model_id} cannot be loaded"
            f" and would be random: {first} {what}.",
            remedy="copy all files of the model again; a model that begins with random weights is"
            " made by the hook build_model(config)",
        )
    unexpected = sorted(info.get("unexpected_keys") or ())
    if not unexpected:
        return ""
    return f"{len(unexpected)} weights of its files have no place in it, such as {unexpected[0]}"


def _refused(model_id: str, text: str) -> ModelError:
    return ModelError(
        f"A library does not do what was asked for with {model_id}: {text}",
        remedy="nothing was trained; change the setting that it names, or the model's files",
    )
