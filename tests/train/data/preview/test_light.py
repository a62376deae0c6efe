"""What is imported ahead of a job: the same library, with one look at its models, and hidden."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """\
import sys
from pathlib import Path
from llmops_kernel.train.data.preview.light import import_ahead, without_torch

import_ahead()
assert "transformers" not in sys.modules and "torch" not in sys.modules
with without_torch():
    import transformers
    from transformers import AutoTokenizer
    from transformers.utils import import_utils
assert "torch" not in sys.modules
read = import_utils.create_import_structure_from_path
folder = Path(transformers.__file__).parent / "models"
assert read.cache_info().misses < 1000, "the folders were read twice"
taken = import_utils.define_import_structure(str(folder / "__init__.py"))
assert import_utils.define_import_structure.cache_info().hits >= 1
read.cache_clear()
import_utils.define_import_structure.cache_clear()
assert taken == import_utils.define_import_structure(str(folder / "__init__.py"))
"""


def test_the_library_is_imported_whole_and_is_hidden_from_hooks() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
