"""The wheel and the sdist carry everything that is needed at run time, and need no Node.js."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import jupyterlab
import pytest

from llmops_kernel.services.demo import FILES
from llmops_kernel.version import VERSION

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "llmops_kernel" / "labextension"
DATA = "data/share/jupyter/labextensions/@llmops/lab/"
CONFIG = "data/etc/jupyter/jupyter_server_config.d/llmops_kernel.json"
NAME, MODULE = "@llmops/lab", "llmops_kernel.server"

pytestmark = pytest.mark.skipif(
    not (BUILT / "package.json").exists(),
    reason="the Lab extension is not built; make labextension",
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Without Node.js, and without Jupyter folders of the user."""
    folder = tmp_path_factory.mktemp("empty")
    reported = {
        "PATH": str(folder),
        "HOME": str(folder),
        "JUPYTER_NO_CONFIG": "",
        "LANG": "C.UTF-8",
    }
    assert shutil.which("node", path=reported["PATH"]) is None
    return reported


def build(what: str, folder: Path, environment: dict[str, str], *, source: Path = ROOT) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", what, "-d", str(folder)]
    subprocess.run(
        command, cwd=source, env=environment, check=True, capture_output=True, timeout=120
    )
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"), environment)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    return build("sdist", tmp_path_factory.mktemp("sdist"), environment)


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def of_data(names: set[str]) -> set[str]:
    """Of the Lab extension, relative to it."""
    return {name.partition(DATA)[2] for name in names if DATA in name}


def test_wheel_and_sdist_have_the_version_of_the_package(wheel: Path, sdist: Path) -> None:
    assert wheel.name.startswith(f"llmops_kernel-{VERSION}-")
    assert sdist.name == f"llmops_kernel-{VERSION}.tar.gz"


def test_every_file_of_the_package_is_in_the_wheel(names: set[str]) -> None:
    package = ROOT / "llmops_kernel"
    files = {
        path.relative_to(ROOT).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.is_relative_to(BUILT)
    }
    # Ray's plug-in moves to the top level of the wheel.
    assert files - names == {"llmops_kernel/providers/kuberay/route/llmops_ray.py"}
    assert any(name.startswith("llmops_kernel/widgets/static/") for name in names)


def test_the_cluster_templates_come_along(names: set[str]) -> None:
    folder = ROOT / "cluster_templates"
    files = {f"llmops_kernel/cluster_templates/{path.name}" for path in folder.iterdir()}
    assert len(files) >= 7
    assert files - names == set()


def test_the_demo_comes_along(wheel: Path, names: set[str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in FILES:
            packed = f"llmops_kernel/demo_workspace/{name}"
            assert packed in names
            assert archive.read(packed) == (ROOT / "notebooks" / name).read_bytes()


def test_nothing_else_is_in_the_wheel(names: set[str]) -> None:
    roots = {name.split("/")[0] for name in names}
    (data,) = {root for root in roots if root.endswith(".data")}
    assert {root for root in roots if not root.endswith((".dist-info", ".data"))} == {
        "llmops_kernel",
        "llmops_ray.py",
    }
    assert {name for name in names if name.startswith(data) and DATA not in name} == {
        f"{data}/{CONFIG}"
    }
    odd = re.compile(r"node_modules|__pycache__|\.tsx?$|\.map$|\.tsbuildinfo$|(^|/)\.")
    assert [name for name in names if odd.search(name)] == []


def test_the_lab_extension_is_whole(wheel: Path, names: set[str]) -> None:
    inside = of_data(names)
    assert {"package.json", "install.json", f"schemas/{NAME}/plugin.json"} <= inside
    built = {p.relative_to(BUILT).as_posix() for p in BUILT.rglob("*") if p.is_file()}
    assert inside == built | {"install.json"}
    with zipfile.ZipFile(wheel) as archive:
        (package_json,) = (name for name in names if name.endswith(f"{DATA}package.json"))
        reported = json.loads(archive.read(package_json))
        assert reported["jupyterlab"]["_build"]["load"] in inside
        assert reported["name"] == NAME
        (config,) = (name for name in names if name.endswith(CONFIG))
        assert json.loads(archive.read(config))["ServerApp"]["jpserver_extensions"] == {
            MODULE: True
        }


def test_nothing_built_names_the_machine_it_was_built_on(wheel: Path, names: set[str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in names:
            text = archive.read(name).decode(errors="replace")
            assert str(ROOT) not in text, name
            assert "sourceMappingURL=/" not in text, name
            if DATA in name:
                assert not re.search(r"https?://registry\.|file:///", text), name


def test_the_sdist_is_built_and_installed_from_without_node(
    sdist: Path, wheel: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        inside = archive.getnames()
        archive.extractall(tmp_path)  # No `filter`: Debian 12 has Python 3.11.2. It is our own.
    odd = re.compile(r"node_modules|/extension/lib/|__pycache__|\.ipynb_checkpoints")
    assert [name for name in inside if odd.search(name)] == []
    (source,) = tmp_path.iterdir()
    assert (source / "llmops_kernel/labextension/static/style.js").exists()
    assert (source / "extension/src/index.ts").exists()
    again = build("wheel", tmp_path / "dist", environment, source=source)
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert of_data(set(first.namelist())) == of_data(set(second.namelist()))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("installed") / "venv")


def install(wheel: Path, folder: Path) -> Path:
    """Return the Python of a new environment with the wheel and, after it, our own packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    options = ["--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run([*command, *options], check=True, capture_output=True, timeout=120)
    (packages,) = folder.glob("lib/python*/site-packages")
    ours = Path(jupyterlab.__file__).parents[1]
    # Not with `site.addsitedir`: its .pth files would bring the source tree.
    (packages / "rest.pth").write_text(f"{ours}\n")
    return python


def test_rays_job_client_finds_its_plugin(installed: Path, environment: dict[str, str]) -> None:
    """Ray imports `llmops_ray` for an address `llmops_ray://...`."""
    assert_plugin(installed, environment, code_below=installed.parents[1])


def test_also_in_an_editable_installation(environment: dict[str, str], tmp_path: Path) -> None:
    # As the Makefile does: only the wheel needs a Lab extension that is built.
    skip = {**environment, "SKIP_JUPYTER_BUILDER": "1"}
    editable = build("wheel:editable", tmp_path / "dist", skip)
    python = install(editable, tmp_path / "venv")
    assert_plugin(python, environment, code_below=ROOT)


def assert_plugin(python: Path, environment: dict[str, str], *, code_below: Path) -> None:
    code = """import llmops_ray
function = llmops_ray.get_job_submission_client_cluster_info
print(llmops_ray.__file__)
print(function.__code__.co_filename)"""
    done = subprocess.run(
        [str(python), "-c", code],
        env=environment,
        cwd=python.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    plugin, function = done.stdout.splitlines()
    assert Path(plugin).is_relative_to(python.parents[1])
    assert Path(function).is_relative_to(code_below)


def listed(python: Path, environment: dict[str, str], kind: str) -> str:
    app = {"lab": "jupyterlab.labextensions", "server": "jupyter_server.extension.serverextension"}
    code = f"import sys; from {app[kind]} import main; sys.exit(main())"
    done = subprocess.run(
        [str(python), "-c", code, "list"],
        env={**environment, "JUPYTER_PREFER_ENV_PATH": "1"},
        cwd=python.parent,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", (done.stdout + done.stderr).decode())


def test_installed_it_is_enabled_without_node(installed: Path, environment: dict[str, str]) -> None:
    where = subprocess.run(
        [str(installed), "-c", "import llmops_kernel; print(llmops_kernel.__file__)"],
        env=environment, cwd=installed.parent, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    assert Path(where.strip()).is_relative_to(installed.parents[1])
    lab = listed(installed, environment, "lab")
    prefix = os.fspath(installed.parents[1])
    assert prefix in lab
    assert re.search(rf"{NAME} v\S+ enabled\s+.*OK.*python, llmops-kernel", lab), lab
    server = listed(installed, environment, "server")
    assert re.search(rf"{MODULE}\s.*enabled", server), server
    assert re.search(rf"{MODULE}\s.*OK", server), server
