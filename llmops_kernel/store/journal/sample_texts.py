"""Prompts and references of sampled rows: a process reports them once, a view shows them always.

An evaluation answers the same rows each time. With their texts in each report, a long training
would write thousands of copies of them into its journal.
"""

from __future__ import annotations

from collections.abc import Iterable

from llmops_kernel.metrics.events import EvalEvent

Sample = dict[str, str]
REPEATED = ("prompt", "reference")


class UnrepeatedSamples:
    """Texts that one process has reported, so that each is written once."""

    def __init__(self) -> None:
        self._reported: dict[str, Sample] = {}

    def new(self, samples: Iterable[Sample]) -> tuple[Sample, ...]:
        """Return the samples without the texts that an earlier report has of the same row."""
        return tuple(self._new(sample) for sample in samples)

    def _new(self, sample: Sample) -> Sample:
        texts = _texts(sample)
        first = self._reported.setdefault(sample["row"], texts)
        if first is texts or first != texts:
            return sample
        return {name: text for name, text in sample.items() if name not in REPEATED}


class SampleTexts:
    """The texts of all rows that were seen, by the stream which has them."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], tuple[int, Sample]] = {}
        self._whole: dict[tuple[str, int, int], EvalEvent] = {}

    def note(self, event: EvalEvent) -> None:
        """Keep the texts that the event has; in any order of events."""
        for sample in event.samples:
            texts, key = _texts(sample), (event.stream, sample.get("row", ""))
            if texts and (key not in self._first or event.seq < self._first[key][0]):
                self._first[key] = (event.seq, texts)
                self._whole.clear()

    def whole(self, event: EvalEvent) -> EvalEvent:
        """Return the event with the texts that an earlier one of its stream has."""
        if all(map(_has_texts, event.samples)):
            return event
        key = (event.stream, event.seq, event.step)
        if key not in self._whole:
            samples = tuple(self._filled(event.stream, sample) for sample in event.samples)
            self._whole[key] = event.model_copy(update={"samples": samples})
        return self._whole[key]

    def _filled(self, stream: str, sample: Sample) -> Sample:
        if _has_texts(sample):
            return sample
        _, texts = self._first.get((stream, sample.get("row", "")), (0, {}))
        return {**texts, **sample}


def _texts(sample: Sample) -> Sample:
    return {name: sample[name] for name in REPEATED if name in sample}


def _has_texts(sample: Sample) -> bool:
    return any(name in sample for name in REPEATED)
