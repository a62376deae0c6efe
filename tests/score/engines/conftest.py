"""The tiny model, for the engines' tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    from llmops_kernel.models import catalogue

    return catalogue.prepare("tiny-llama")
