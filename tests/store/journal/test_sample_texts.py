"""Texts of sampled rows: written once by each process, there again in every evaluation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.metrics.events import EvalEvent
from llmops_kernel.store.journal.sample_texts import SampleTexts, UnrepeatedSamples
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.views.samples import sampled_rows


def sample(row: str, prediction: str, **texts: str) -> dict[str, str]:
    return {"row": row, **texts, "prediction": prediction}


def test_a_row_is_written_whole_once() -> None:
    samples = UnrepeatedSamples()
    first = (sample("1", "a", prompt="p", reference="r"), sample("prompt 1", "b", prompt="q"))
    assert samples.new(first) == first
    later = samples.new((sample("1", "c", prompt="p", reference="r"),))
    assert later == (sample("1", "c"),)
    changed = (sample("1", "d", prompt="another", reference="r"),)
    assert samples.new(changed) == changed
    assert samples.new((sample("1", "e", prompt="p", reference="r"),)) == (sample("1", "e"),)


ROWS = st.dictionaries(
    st.sampled_from(["1", "40", "prompt 1"]),
    st.fixed_dictionaries({"prompt": st.text(max_size=3)}, optional={"reference": st.just("r")}),
)
PLANS = st.lists(ROWS, max_size=6)
Plan = list[dict[str, dict[str, str]]]


@given(st.data(), PLANS, PLANS)
def test_in_any_order_each_process_has_its_own_texts_back(
    data: st.DataObject, one: Plan, other: Plan
) -> None:
    whole, written = [], []
    for stream, plan in (("1-worker-1", one), ("1-worker-2", other)):
        unrepeated = UnrepeatedSamples()
        for seq, rows in enumerate(plan, start=1):
            samples = tuple(sample(row, f"{seq}", **texts) for row, texts in rows.items())
            event = EvalEvent(step=seq, metrics={}, samples=samples, seq=seq, stream=stream)
            whole.append(event)
            written.append(event.model_copy(update={"samples": unrepeated.new(samples)}))
    texts = SampleTexts()
    for place in data.draw(st.permutations(range(len(written)))):
        texts.note(written[place])
        texts.whole(written[place])  # Asked too early it must not be kept.
    assert [texts.whole(event) for event in written] == whole


def test_a_view_shows_the_texts_in_each_evaluation() -> None:
    unrepeated = UnrepeatedSamples()
    events = [
        EvalEvent(
            step=step,
            metrics={},
            samples=unrepeated.new([sample("7", f"at {step}", prompt="p", reference="r")]),
            seq=step,
            time_s=float(step),
            stream="1-worker-1",
        )
        for step in (1, 2)
    ]
    view = TrainingView(reversed(events))
    [row] = sampled_rows(view.evaluations)
    assert [row.answers[step]["prompt"] for step in (1, 2)] == ["p", "p"]
    assert view.sampled is not None
    assert view.sampled.samples[0]["reference"] == "r"
