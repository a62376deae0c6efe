from __future__ import annotations

import shutil
import subprocess

import pytest

from llmops_kernel.store.code import MAX_DIFF_BYTES, read_git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def git(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    def run(*arguments: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
        command = ["git", *who, *arguments]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    run("init", "-q")
    (tmp_path / "a.py").write_text("x = 1\n")
    return run


def commit(git) -> str:
    git("add", ".")
    git("commit", "-qm", "one")
    return git("rev-parse", "HEAD")


def test_a_clean_repository(git, tmp_path):
    revision = commit(git)
    state, diff = read_git(tmp_path)
    assert (state.revision, state.branch, state.dirty, diff) == (revision, "main", False, "")


def test_edits_staged_or_not_and_untracked_names(git, tmp_path):
    commit(git)
    (tmp_path / "a.py").write_text("x = 2\n")
    (tmp_path / "staged.py").write_text("s\n")
    git("add", "staged.py")
    (tmp_path / "new é.py").write_text("content travels in the package\n")
    state, diff = read_git(tmp_path)
    assert state.dirty
    assert diff.startswith("# untracked: 'new é.py'\n")
    assert "-x = 1\n+x = 2\n" in diff
    assert "+s\n" in diff
    assert "content travels" not in diff


def test_only_untracked_files_are_dirty_too(git, tmp_path):
    commit(git)
    (tmp_path / "new.py").write_text("")
    state, diff = read_git(tmp_path)
    assert (state.dirty, diff) == (True, "# untracked: 'new.py'\n")


def test_a_workspace_below_the_repository_sees_only_itself(git, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "w.py").write_text("1\n")
    commit(git)
    (tmp_path / "a.py").write_text("outside\n")
    assert read_git(tmp_path / "work")[0].dirty is False
    (tmp_path / "work" / "w.py").write_text("2\n")
    assert "+++ b/w.py" in read_git(tmp_path / "work")[1]


def test_a_detached_head_has_no_branch(git, tmp_path):
    git("checkout", "-q", "--detach", commit(git))
    assert read_git(tmp_path)[0].branch is None


def test_a_huge_difference_is_cut_and_says_so(git, tmp_path):
    commit(git)
    (tmp_path / "a.py").write_text("long line of code\n" * 200_000)
    diff = read_git(tmp_path)[1]
    assert len(diff) < MAX_DIFF_BYTES + 200
    assert diff.splitlines()[-1].startswith("# cut at 1 MiB of 3,8")


def test_no_program_of_the_repository_is_run(git, tmp_path):
    commit(git)
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "diff.evil.textconv"):
        git("config", key, str(trap))
    (tmp_path / ".gitattributes").write_text("*.py diff=evil\n")
    (tmp_path / "a.py").write_text("x = 3\n")
    assert "+x = 3" in read_git(tmp_path)[1]
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["evil", "ev=il", "Evil.two"])
@pytest.mark.parametrize("kind", ["clean", "process"])
def test_a_filter_that_the_repository_names_is_not_run(git, tmp_path, name, kind):
    """Whoever sends a repository would otherwise run a program at the next submission."""
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    commit(git)
    git("config", f"filter.{name}.{kind}", str(trap))
    git("config", f"filter.{name}.required", "true")
    (tmp_path / ".gitattributes").write_text(f"*.py filter={name}\n")
    (tmp_path / "a.py").write_text("x = 3\n")
    assert "+x = 3" in read_git(tmp_path)[1]
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("url", ["ext::{trap}", "{folder}/elsewhere"])
def test_no_remote_that_the_repository_names_is_asked(git, tmp_path, url):
    """A partial clone fetches a missing file by the program that its configuration names."""
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    commit(git)
    git("init", "-q", str(tmp_path / "elsewhere"))
    blob = git("rev-parse", "HEAD:a.py")
    (tmp_path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "evil",
        "remote.evil.url": url.format(trap=trap, folder=tmp_path),
        "remote.evil.promisor": "true",
        "remote.evil.uploadpack": str(trap),
        "protocol.ext.allow": "always",
    }.items():
        git("config", key, value)
    (tmp_path / "a.py").write_text("x = 3\n")
    state, difference = read_git(tmp_path)
    assert state is not None
    assert "+x = 3" not in difference  # Git could not read the file of the revision.
    assert not (tmp_path / "sprung").exists()


def test_a_filter_of_the_users_own_is_run(git, tmp_path, monkeypatch):
    """As Git LFS, without which each of its files would look changed."""
    own = tmp_path.parent / f"{tmp_path.name}-gitconfig"
    own.write_text('[filter "upper"]\n\tclean = tr a-z A-Z\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    (tmp_path / ".gitattributes").write_text("*.txt filter=upper\n")
    (tmp_path / "a.txt").write_text("hello\n")
    commit(git)
    git("config", "filter.upper.clean", "false")
    (tmp_path / "a.txt").write_text("other\n")
    assert "+OTHER" in read_git(tmp_path)[1]


def test_without_commit_repository_or_git_there_is_nothing(git, tmp_path, monkeypatch):
    assert read_git(tmp_path) == (None, "")
    commit(git)
    shutil.rmtree(tmp_path / ".git")
    assert read_git(tmp_path) == (None, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_git(tmp_path) == (None, "")
    assert read_git(tmp_path / "missing") == (None, "")
