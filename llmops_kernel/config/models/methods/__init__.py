"""The methods of training: one file each. A new one is imported here."""

from __future__ import annotations

from llmops_kernel.config.models.methods.adapters import AdapterMethod
from llmops_kernel.config.models.methods.base import METHODS, MethodConfig
from llmops_kernel.config.models.methods.full import FullMethod
from llmops_kernel.config.models.methods.lora import LoraMethod
from llmops_kernel.config.models.methods.qlora import QloraMethod

__all__ = ["METHODS", "AdapterMethod", "FullMethod", "LoraMethod", "MethodConfig", "QloraMethod"]
