"""The tests here that train use the tiny model and the configs of `tests/train`."""

from tests.train.conftest import make_config, tiny_llama, tokenizer, workspace

__all__ = ["make_config", "tiny_llama", "tokenizer", "workspace"]
