"""How the tests are divided among the processes of pytest-xdist."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

_USES_RAY = re.compile(r"\bmark\.ray\b")


class ByFile(LoadScopeScheduling):
    """Keeps the tests of a file in one process, and so all files with tests that use Ray.

    Those with Ray in pods, which wait most of the time, are together too, apart from the others.
    `--dist loadgroup` does neither with pytest 9.2, without a word: xdist 3.8.0 writes a test's
    group into an attribute that is no longer read (pytest-xdist, issue 1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if not uses_ray(self.config.rootpath / file):
            return file
        return "pods" if file.startswith("tests/k8s/") else "ray"


@lru_cache
def uses_ray(file: Path) -> bool:
    return _USES_RAY.search(file.read_text(encoding="utf-8")) is not None
