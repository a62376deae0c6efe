"""The grade that a judge gave to each row of an output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from llmops_kernel.metrics.bootstrap import Floats
from llmops_kernel.metrics.grades import FOLDER, ROW, grade_value

METRIC: Final = "judge"
_ROW: Final = f"input_{ROW}"
"""The judge's own rows are numbered too, so it has renamed the column of its input."""


def read_grades(files: Any, root: str, *, grades: Sequence[str]) -> Floats | None:
    """Return the place of each row's grade, 0..1, by the number of the row; None without a judge.

    NaN is a row that was not graded. `grades`: from best to worst.
    """
    import pyarrow.parquet as pq
    from pyarrow import fs

    folder = fs.FileSelector(f"{root.rstrip('/')}/{FOLDER}", allow_not_found=True)
    numbers, places = [], []
    values = {grade: grade_value(grade, grades) for grade in grades}
    for info in files.get_file_info(folder):
        if not info.base_name.startswith("part-"):
            continue
        with files.open_input_file(info.path) as source:
            table = pq.ParquetFile(source).read(columns=[_ROW, "label"])
        numbers.append(table.column(_ROW).cast("int64").to_numpy())
        labels = table.column("label").to_pylist()
        places.append(np.array([values.get(label) for label in labels], dtype=np.float64))
    if not numbers:
        return None
    at = np.concatenate(numbers)
    found = np.full(int(at.max()) + 1 if len(at) else 0, np.nan)
    found[at] = np.concatenate(places)
    return found


def of_rows(found: Floats, numbers: Sequence[int | None]) -> list[float]:
    """Return the places of some rows."""
    known = [number is not None and 0 <= number < len(found) for number in numbers]
    return [
        float(found[number]) if is_known else float("nan")
        for number, is_known in zip(numbers, known, strict=True)
    ]
