"""A run's own packages: installed once, behind the environment, or in front with the reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import zipfile
from pathlib import Path

import pytest

from llmops_kernel.driver.packages import (
    PackageRequest,
    Packages,
    Stopped,
    _key,
    install,
    use,
    why_cold,
    without_secrets,
)
from llmops_kernel.errors import MissingDependencyError


def wheel(folder: Path, name: str, version: str, *, code: str = "", needs: str = "") -> None:
    """Write a wheel with one module, by hand as the format's specification says."""
    folder.mkdir(parents=True, exist_ok=True)
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    about += f"Requires-Dist: {needs}\n" if needs else ""
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {
        f"{module}.py": code or f"VERSION = {version!r}\n",
        f"{info}/METADATA": about,
        f"{info}/WHEEL": tags,
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace whose requirements come from a folder of wheels, not from the network."""
    folder = tmp_path / "workspace"
    wheels = folder / "wheels"
    wheel(wheels, "llmops-extra", "1.0", needs="llmops-deep>=2")
    wheel(wheels, "llmops-deep", "2.5")
    wheel(wheels, "llmops-deep", "1.5")
    wheel(wheels, "llmops-typing", "1.0", needs="pytest>=1")
    wheel(wheels, "packaging", "1.2.3", code="OLD = True\n")
    wheel(wheels, "ray", "0.0.1")
    return folder


def wanted(workspace: Path, *packages: str, more: str = "") -> PackageRequest:
    (workspace / "more.txt").write_text(f"--no-index\n--find-links ./wheels\n{more}\n")
    return PackageRequest(packages=packages, requirements="more.txt")


def found(laid: Packages, code: str) -> str:
    """What a program prints that finds the packages as a run's does."""
    program = "\n".join(
        [
            "from pathlib import Path",
            "from llmops_kernel.driver.packages import Packages, use",
            f"use(Packages(folder=Path({str(laid.folder)!r}), replaces={laid.replaces!r}))",
            textwrap.dedent(code),
        ]
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_package_and_what_it_needs_but_nothing_that_is_there(
    workspace: Path, tmp_path: Path
) -> None:
    asked = wanted(workspace, "llmops-extra==1.0", "llmops-typing")
    laid = install(asked, tmp_path / "packages", workspace=workspace)
    assert sorted(laid.installed) == ["llmops-deep 2.5", "llmops-extra 1.0", "llmops-typing 1.0"]
    assert laid.modules() == {"llmops_deep", "llmops_extra", "llmops_typing"}
    assert (laid.is_new, laid.is_first, laid.replaces) == (True, False, ())
    again = install(asked, tmp_path / "packages", workspace=workspace)
    assert (again.folder, again.is_new) == (laid.folder, False)
    code = """
        import subprocess, sys
        import llmops_extra
        print(llmops_extra.VERSION, sys.path[-1] == llmops_extra.__file__.rpartition("/")[0])
        sys.stdout.flush()
        subprocess.run([sys.executable, "-c", "import llmops_deep as d; print(d.VERSION)"])
    """
    assert found(laid, code) == "1.0 True\n2.5"


def test_other_content_is_another_folder(workspace: Path, tmp_path: Path) -> None:
    root = tmp_path / "packages"
    first = install(wanted(workspace, "llmops-deep"), root, workspace=workspace)
    other = install(wanted(workspace, "llmops-deep==1.5"), root, workspace=workspace)
    third = install(wanted(workspace, more="llmops-deep<2"), root, workspace=workspace)
    assert len({first.folder, other.folder, third.folder}) == 3
    assert third.installed == ("llmops-deep 1.5",)


def test_a_wheel_of_the_workspace_that_was_built_anew_is_installed_anew(
    workspace: Path, tmp_path: Path
) -> None:
    """Its name is the same: the old one was used, without a word."""
    root = tmp_path / "packages"
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("llmops-deep<3\n")
    asked = wanted(
        workspace,
        "./wheels/llmops_deep-2.5-py3-none-any.whl",
        more=f"--constraint {constraints.as_uri()}",
    )
    first = install(asked, root, workspace=workspace)
    assert install(asked, root, workspace=workspace).folder == first.folder
    wheel(workspace / "wheels", "llmops-deep", "2.5", code="VERSION = 'new'\n")
    second = install(asked, root, workspace=workspace)
    assert found(second, "import llmops_deep; print(llmops_deep.VERSION)") == "new"
    library = workspace / "library"
    library.mkdir()
    keys = set()
    for text in ("A = 1", "A = 2"):
        (library / "code.py").write_text(text)
        keys.add(_key(PackageRequest(packages=("./library",)), workspace, {}))
    assert len(keys) == 2
    hashes = " ".join(f"--hash=sha256:{number:064x}" for number in range(9))
    assert _key(
        PackageRequest(packages=(f"numpy==2.0 {hashes}", f"a @ https://b/{'c' * 300}")),
        workspace,
        {},
    )


def test_another_version_of_what_is_installed_comes_first(workspace: Path, tmp_path: Path) -> None:
    asked = wanted(workspace, "packaging==1.2.3")
    laid = install(asked, tmp_path / "packages", workspace=workspace)
    [replaced] = laid.replaces
    assert replaced.startswith("packaging ")
    assert replaced.endswith(" by 1.2.3")
    assert found(laid, "import packaging; print(packaging.OLD)") == "True"
    import packaging  # noqa: F401  As a fork server has.

    assert replaced in why_cold(laid, looked_for=())


def test_libraries_that_have_looked_for_a_package_would_not_see_it(
    workspace: Path, tmp_path: Path
) -> None:
    laid = install(wanted(workspace, "llmops-deep"), tmp_path / "packages", workspace=workspace)
    assert why_cold(laid, looked_for=("torch_xla",)) == ""
    why = why_cold(laid, looked_for=("llmops_deep", "torch_xla"))
    assert "llmops_deep" in why
    assert "torch_xla" not in why


def test_ray_itself_is_not_replaced(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingDependencyError, match=r"would replace ray .* by 0\.0\.1"):
        install(wanted(workspace, "ray==0.0.1"), tmp_path / "packages", workspace=workspace)


def test_what_pip_says_is_the_error(
    workspace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = wanted(workspace, "no-such-package==7")
    with pytest.raises(MissingDependencyError) as caught:
        install(asked, tmp_path / "packages", workspace=workspace)
    assert "No matching distribution found for no-such-package==7" in caught.value.message
    assert "PIP_INDEX_URL" in caught.value.remedy
    assert "pip's last lines:" in capfd.readouterr().err
    with pytest.raises(MissingDependencyError, match=r"gone\.txt cannot be read"):
        install(PackageRequest(requirements="gone.txt"), tmp_path / "p", workspace=workspace)


def test_two_processes_install_once(workspace: Path, tmp_path: Path) -> None:
    asked = wanted(workspace, "llmops-extra")
    laid: list[Packages] = []
    threads = [
        threading.Thread(
            target=lambda: laid.append(install(asked, tmp_path / "p", workspace=workspace))
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.is_new for one in laid) == [False, False, True]


def test_a_stop_ends_the_installation(workspace: Path, tmp_path: Path) -> None:
    asked = wanted(workspace, "llmops-extra")
    with pytest.raises(Stopped):
        install(asked, tmp_path / "p", workspace=workspace, is_stopped=lambda: True)
    left = [path.name for path in (tmp_path / "p").iterdir() if not path.name.endswith(".lock")]
    assert left == []
    assert install(asked, tmp_path / "p", workspace=workspace).is_new


def test_an_installation_leaves_the_modules_of_its_process_as_they_are(
    workspace: Path, tmp_path: Path
) -> None:
    """What setuptools has put for `distutils`, too, which libraries of a fork have loaded."""
    wanted(workspace, "llmops-deep")
    program = f"""
        import sys
        from pathlib import Path
        import setuptools, distutils.core
        from llmops_kernel.driver.packages import PackageRequest, install
        before = dict(sys.modules)
        asked = PackageRequest(packages=("llmops-deep",), requirements="more.txt")
        laid = install(asked, Path({str(tmp_path / "p")!r}), workspace=Path({str(workspace)!r}))
        print(laid.installed, [name for name in before if sys.modules.get(name) != before[name]])
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("('llmops-deep 2.5',) []", "")


def test_passwords_of_an_index_are_not_shown() -> None:
    shown = "--index-url https://***@pypi.example/simple"
    assert without_secrets("--index-url https://me:secret@pypi.example/simple") == shown
    asked = PackageRequest(packages=("x @ https://token@host/x.whl",), requirements="r.txt")
    assert asked.text == "x @ https://***@host/x.whl, r.txt"
    assert PackageRequest.decode(asked.encode()) == asked


def test_children_find_the_packages_behind_what_they_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".llmops-packages.json").write_text(json.dumps({"installed": [], "replaces": []}))
    monkeypatch.setenv("PYTHONPATH", f"/a{os.pathsep}/b")
    monkeypatch.setattr(sys, "path", list(sys.path))
    use(Packages(folder=tmp_path))
    assert os.environ["PYTHONPATH"].split(os.pathsep) == ["/a", "/b", str(tmp_path)]
    assert sys.path[-1] == str(tmp_path)
    use(Packages(folder=tmp_path, replaces=("a 1 by 2",)))
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)
    assert sys.path[0] == str(tmp_path)
