"""Keeps answers within a JSON schema, with llguidance: the library that vLLM uses, too."""

from __future__ import annotations

import json
from typing import Any

import llguidance
import numpy as np
from llguidance.hf import from_tokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from llmops_kernel.score.engines.prompts import PromptError, closed_schema
from llmops_kernel.score.engines.transformers.loading import Loaded


class Grammars:
    """JSON schemas for one model's tokens."""

    def __init__(self, loaded: Loaded) -> None:
        self._size = max(loaded.vocabulary, len(loaded.tokenizer))
        self._tokenizer = from_tokenizer(
            loaded.tokenizer, n_vocab=self._size, eos_token=sorted(loaded.eos)
        )
        self._checked: dict[str, str] = {}

    def matcher(self, schema: str) -> Matcher:
        """Raise PromptError for a schema that cannot be kept."""
        if schema not in self._checked:
            self._checked[schema] = self._grammar(schema)
        matcher = llguidance.LLMatcher(self._tokenizer, self._checked[schema])
        return Matcher(matcher, self._size)

    def _grammar(self, schema: str) -> str:
        # Without a choice of spaces: a small model would go on writing them.
        grammar = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(closed_schema(schema)), defaults={"whitespace_flexible": False}
        )
        is_error, problems = llguidance.LLMatcher.validate_grammar_with_warnings(
            grammar, self._tokenizer
        )
        if is_error:
            raise PromptError(f"the JSON schema cannot be used: {problems[0]}")
        return grammar


class Matcher:
    """Where one answer stands in the schema."""

    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher = matcher
        self._mask = allocate_token_bitmask(1, size)
        self._size = size

    def allowed(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return for each token whether it may come next."""
        fill_next_token_bitmask(self._matcher, self._mask)
        bits = np.unpackbits(self._mask.view(np.uint8), bitorder="little")
        return bits[: self._size].astype(np.bool_)

    def accept(self, token: int) -> None:
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
