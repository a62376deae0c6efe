"""LoRA adapters of one Transformers model: several loaded, one in use."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from llmops_kernel.score.engines.checkpoint import Shapes, check_adapter, version_of
from llmops_kernel.score.engines.prompts import PromptError

MAX_LOADED = 8
"""More are forgotten, the one used longest ago first."""


class Adapters:
    """Loads adapters when they are first used."""

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self._name = name
        self._shapes: Shapes = {
            weight_name: tuple(weight.shape) for weight_name, weight in model.named_parameters()
        }
        self._loaded: OrderedDict[str, str] = OrderedDict()
        """Version of its files -> the name that PEFT knows it by."""
        self._count = 0
        self._active = ""

    def select(self, folder: str) -> Any:
        """Return the model with this adapter; as it is where empty. Raises PromptError."""
        key = version_of(folder) if folder else ""
        if key == self._active:
            return self._model
        if folder:
            name = self._loaded.get(key) or self._load(folder, key)
            self._loaded.move_to_end(key)
            self._model.base_model.enable_adapter_layers()
            self._model.set_adapter(name)
        else:
            self._model.base_model.disable_adapter_layers()
        self._active = key
        return self._model

    def _load(self, folder: str, key: str) -> str:
        from peft import PeftModel

        check_adapter(folder, self._shapes, self._name)
        self._count += 1
        name = f"adapter{self._count}"
        # In the model's own number format, as vLLM has adapters; PEFT would keep float32.
        options = {"adapter_name": name, "autocast_adapter_dtype": False}
        try:
            if self._loaded:
                self._model.load_adapter(folder, **options)
            else:
                self._model = PeftModel.from_pretrained(self._model, folder, **options)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise PromptError(f"the adapter {folder} cannot be loaded: {error}") from error
        self._model.eval()
        self._loaded[key] = name
        if len(self._loaded) > MAX_LOADED:
            _, oldest = self._loaded.popitem(last=False)
            self._model.delete_adapter(oldest)
        return name
