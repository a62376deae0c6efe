"""An LLM judge: a second scoring that chooses a grade for each answer of a finished one.

Zheng et al., "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena", NeurIPS 2023: single answer
grading. A grade is chosen by constrained choice, so that every answer is one of the grades.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.metrics.scores import FOLDER, ROW, grade_value

_PARTS: Final = "part-*.parquet"
_NAME: Final = 34
"""Characters of the judged run's name: names have at most 40."""
_OF_THE_JUDGED_MODEL: Final = frozenset({"max_model_len", "options"})


def judge_config(config: ScoreConfig, *, output: str) -> ScoreConfig:
    """Return the config of the scoring that grades a finished one, whose output is at `output`.

    Rows are the output's parts, the prompt is the rubric, the choices are the grades. Rows without
    an answer have none to grade: they get an error there, and no grade. Its engine is set up as
    that of the judged model, but for what fits only that model.
    """
    judge = config.evaluation.judge
    engine = config.engine.model_dump(exclude=set(_OF_THE_JUDGED_MODEL))
    return ScoreConfig.model_validate(
        {
            "name": f"{config.name[:_NAME].rstrip('-')}-judge",
            "model": {"id": judge.model, "dtype": config.model.dtype},
            "input": {
                "path": f"{output.rstrip('/')}/{_PARTS}",
                "format": "parquet",
                "key": ROW,
                "columns": [ROW],
            },
            "prompt": {"template": judge.rubric},
            "task": {"type": "classify", "choices": judge.choices},
            "engine": engine,
            "evaluation": {"samples": 0},
            "output": {
                "url": f"{output.rstrip('/')}/{FOLDER}",
                "part_rows": config.output.part_rows,
            },
        }
    )


@dataclass
class Grades:
    """Counts by grade; parts add up."""

    grades: tuple[str, ...]
    """From best to worst."""
    counts: dict[str, int] = field(default_factory=dict)
    ungraded: int = 0
    """Rows without an answer, or whose prompt the judge could not read."""

    def add(self, labels: Iterable[str | None]) -> None:
        """Count grades; None, and any text that is no grade, is an ungraded row."""
        for label in labels:
            if label in self.grades:
                self.counts[label] = self.counts.get(label, 0) + 1
            else:
                self.ungraded += 1

    def merge(self, grades: Grades) -> None:
        for grade, count in grades.counts.items():
            self.counts[grade] = self.counts.get(grade, 0) + count
        self.ungraded += grades.ungraded

    def metrics(self) -> dict[str, float]:
        """Return `judge`, the mean place 0..1, and `judge_<grade>`, the share of each grade.

        Of graded rows; without one there is no metric.
        """
        total = sum(self.counts.values())
        if not total:
            return {}
        places = {grade: grade_value(grade, self.grades) for grade in self.grades}
        summed = sum((places[grade] or 0.0) * count for grade, count in self.counts.items())
        shares = {f"judge_{grade}": self.counts.get(grade, 0) / total for grade in self.grades}
        return {"judge": summed / total, **shares}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Grades:
        """Read what `to_json` gave."""
        return cls(tuple(data["grades"]), dict(data["counts"]), data["ungraded"])
