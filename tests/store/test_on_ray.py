from __future__ import annotations

import shlex
import time

import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.store.package.packages import build
from llmops_kernel.store.package.workspace import scan
from tests.store.test_workspace import fill

LOOK = """
import hooks, llmops_kernel, subprocess
from pathlib import Path
from llmops_kernel.store.package.assets import link_assets
print("linked", link_assets(Path.cwd()), link_assets(Path.cwd()))
print("data", Path("data/train.jsonl").read_text())
print("library", llmops_kernel.__file__)
print(subprocess.check_output("./run.sh", text=True), hooks.x)
"""


@pytest.mark.ray
def test_rays_unpacking_brings_the_workspace_as_it_was(tmp_path):
    root = fill(
        tmp_path / "work",
        {
            "data/train.jsonl": "row 1\n",
            "hooks.py": "x = 'hook'\n",
            "run.sh": "#!/bin/sh\necho hi\n",
        },
    )
    (root / "run.sh").chmod(0o755)
    packages = build(scan(root), tmp_path / "packages")
    provider = LocalProvider(tmp_path / "home")
    try:
        provider.up(ClusterTemplate(name="unpack", num_cpus=1))
        with JobsClient(provider.connect("unpack")) as client:
            for package in (packages.code, packages.assets, packages.library):
                client.upload_package(package.path, name=package.name)
            client.submit(
                entrypoint=f"python -c {shlex.quote(LOOK)}",
                submission_id="look-1",
                runtime_env={
                    "working_dir": packages.code.uri,
                    "py_modules": [packages.library.uri, packages.assets.uri],
                },
                metadata={},
            )
            deadline = time.monotonic() + 120
            while not client.get("look-1").is_terminal:
                assert time.monotonic() < deadline
                time.sleep(0.5)
            log = client.driver_log(client.get("look-1"))
    finally:
        provider.down("unpack")
    assert "linked ['data/train.jsonl'] []\ndata row 1\n" in log
    assert "hi\n hook" in log
    assert f"/_ray_pkg_{packages.library.hash}/llmops_kernel/__init__.py" in log
