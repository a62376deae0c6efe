"""The methods of training: one file each. A new one is imported here."""

from __future__ import annotations

from llmops_kernel.config.models.methods.base import METHODS, MethodConfig
from llmops_kernel.config.models.methods.full import FullMethod
from llmops_kernel.config.models.methods.lora import LoraMethod

__all__ = ["METHODS", "FullMethod", "LoraMethod", "MethodConfig"]
