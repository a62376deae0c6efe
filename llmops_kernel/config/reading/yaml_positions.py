"""Where each key and value is in a YAML text, as character offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from llmops_kernel.config.reading.origins import Path
from llmops_kernel.config.reading.yaml_dialect import Loader
from llmops_kernel.config.reading.yaml_source import MERGE, READ_ERRORS


@dataclass(frozen=True)
class Place:
    """One `key: value` or list item; offsets count characters from 0."""

    path: Path
    key_start: int
    key_end: int
    value_start: int
    value_end: int
    value: yaml.Node
    in_flow: bool = False

    @property
    def is_empty(self) -> bool:
        return self.value_end == self.value_start

    @property
    def is_block(self) -> bool:
        """A collection over several lines, without brackets."""
        return isinstance(self.value, yaml.CollectionNode) and not self.value.flow_style


class Places:
    """The positions of all keys in a text; none when it is not YAML."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.all: list[Place] = []
        self._seen: set[int] = set()
        try:
            self.root = Loader(text).get_single_node()
        except READ_ERRORS:
            self.root = None
        if self.root is not None:
            self.all = list(self._walk(self.root, ()))
        self._by_path = {place.path: place for place in reversed(self.all)}
        self._by_name: dict[str, list[Place]] = {}
        for place in self.all:
            self._by_name.setdefault(".".join(place.path), []).append(place)

    def get(self, path: Path) -> Place | None:
        """Return the position of exactly this path; for a key given twice, the first."""
        return self._by_path.get(path)

    def named(self, dotted: str) -> list[Place]:
        """Like `get` for a dotted path, all of a key given several times."""
        return self._by_name.get(dotted, [])

    def below(self, path: Path) -> list[Place]:
        """Return the direct children, in order."""
        depth = len(path) + 1
        return [p for p in self.all if len(p.path) == depth and p.path[:-1] == path]

    def _walk(self, node: yaml.Node, path: Path) -> Iterator[Place]:
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.tag == MERGE:
                    continue  # what is merged in stands where its anchor is
                below = (*path, str(key.value))
                yield self._place(below, key, value, bool(node.flow_style))
                yield from self._walk(value, below)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                below = (*path, str(index))
                yield self._place(below, item, item, bool(node.flow_style))
                yield from self._walk(item, below)

    def _place(self, path: Path, key: yaml.Node, value: yaml.Node, in_flow: bool) -> Place:
        start, end = key.start_mark.index, self.end_of(key)
        if value is not key and value.start_mark.index < start:
            # An alias: the value stands where its anchor is.
            return Place(path, start, end, end, end, value, in_flow=in_flow)
        return Place(
            path, start, end, value.start_mark.index, self.end_of(value), value, in_flow=in_flow
        )

    def end_of(self, node: yaml.Node) -> int:
        """Return the offset after a node; the parser's own mark is after blank lines."""
        start, end = node.start_mark.index, node.end_mark.index
        while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            key, inner = last if isinstance(last, tuple) else (None, last)
            behind = key.end_mark.index if key is not None else node.start_mark.index + 1
            if inner.start_mark.index < behind:  # an alias, whose own position is not known
                return max(start, len(self.text[:end].rstrip()))
            node, end = inner, inner.end_mark.index
        return max(start, len(self.text[:end].rstrip())) if end > start else end
