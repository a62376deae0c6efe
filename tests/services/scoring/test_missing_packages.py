"""A client without the packages that read Parquet or compute BLEU is told what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

_WITHOUT = """
import sys
sys.modules[{package!r}] = None
from llmops_kernel.errors import MissingDependencyError
try:
    {code}
except MissingDependencyError as error:
    print(error.remedy)
"""


@pytest.mark.parametrize(
    ("package", "code", "remedy"),
    [
        (
            "pyarrow",
            "from llmops_kernel.services.scoring.output import ScoredOutput;"
            " ScoredOutput('/tmp', name='a')",
            "pip install pyarrow",
        ),
        (
            "sacrebleu",
            "from llmops_kernel.score.evaluate.text_metrics import Bleu; Bleu()",
            "llmops-kernel[train]",
        ),
    ],
)
def test_the_remedy_names_the_package(package: str, code: str, remedy: str) -> None:
    program = _WITHOUT.format(package=package, code=code)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert remedy in done.stdout


def test_the_server_starts_without_pandas() -> None:
    program = "import sys; import llmops_kernel.server.app; print('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "False"
