from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
import time
from pathlib import Path

import pytest

from llmops_kernel.errors import WorkspaceError
from llmops_kernel.store.package import workspace as workspace_module
from llmops_kernel.store.package.hashes import digest_of
from llmops_kernel.store.package.workspace import left_out_line, scan


def fill(root: Path, files: dict[str, str]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for rel, text in files.items():
        path = root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(root: Path) -> list[str]:
    return list(scan(root).files)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_files_come_sorted_with_size_hash_and_mode(root):
    fill(root, {"b.py": "b", "a/x.py": "x = 1\n", "run.sh": ""})
    (root / "run.sh").chmod(0o755)
    files = scan(root).files
    assert list(files) == ["a/x.py", "b.py", "run.sh"]
    assert files["a/x.py"].size_bytes == 6
    assert files["a/x.py"].sha256_16 == digest_of(b"x = 1\n")
    assert [files[name].executable for name in files] == [False, False, True]
    assert scan(root).hashes["b.py"] == digest_of(b"b")
    assert scan(str(root)).size_bytes == 7


@pytest.mark.parametrize(
    ("ignore", "left_out"),
    [
        ({}, []),
        ({".gitignore": "*.log"}, ["a.log", "data/a.log"]),
        ({".rayignore": "/data/"}, ["data/a.log", "data/big/x.bin"]),
        ({".llmopsignore": "data/*\n!data/a.log"}, ["data/big/x.bin"]),
        ({".gitignore": "*.log\n!/a.log"}, ["data/a.log"]),
        # A deeper file has the last word, and holds only below itself.
        ({".gitignore": "*.log", "data/.gitignore": "!*.log"}, ["a.log"]),
        ({"data/.gitignore": "a.log\n/big"}, ["data/a.log", "data/big/x.bin"]),
        # Ours has the last word over git's in the same folder.
        ({".gitignore": "data", ".llmopsignore": "!data"}, []),
        ({".gitignore": "# all\n\n*\n!m.py"}, ["a.log", "data/a.log", "data/big/x.bin"]),
    ],
)
def test_ignore_files_at_each_level(root, ignore, left_out):
    files = dict.fromkeys(["a.log", "data/a.log", "data/big/x.bin", "m.py"], "")
    fill(root, files | ignore)
    found = [name for name in names(root) if not name.endswith("ignore")]
    assert found == [name for name in files if name not in left_out]


def test_our_own_folders_in_the_workspace_stay_at_home(root, monkeypatch):
    monkeypatch.setenv("LLMOPS_HOME", str(root / "runs"))
    monkeypatch.setenv("LLMOPS_CACHE", str(root / "tools" / "cache"))
    fill(root, dict.fromkeys(["runs/runs.sqlite", "tools/cache/x", "tools/x.py", "train.py"], ""))
    (root / "runs" / "live").symlink_to("/tmp")  # Nothing in them is a problem either.
    assert names(root) == ["tools/x.py", "train.py"]


def test_a_python_environment_of_any_name_stays_at_home(root):
    environments = ["env/pyvenv.cfg", "env/lib/x.py", "tools/py311/conda-meta/history"]
    files = [*environments, "train.py", "tools/conda.py"]
    fill(root, dict.fromkeys(files, ""))
    assert names(root) == ["tools/conda.py", "train.py"]
    assert scan(root).ignored == ()
    assert names(root / "env") == ["lib/x.py", "pyvenv.cfg"]  # Whoever names it means it.


@pytest.mark.parametrize(
    "rel",
    [
        ".git/config",
        "sub/.git/config",
        ".venv/lib/x.py",
        "venv/x.py",
        "a/__pycache__/m.cpython-311.pyc",
        "m.pyc",
        "node_modules/x/index.js",
        ".ipynb_checkpoints/n.py",
        "note.ipynb",
        ".env",
        "out/checkpoint-10/model.safetensors",
        "wandb/run/x",
        ".llmops/assets.json",
        ".#m.py",
    ],
)
def test_what_never_travels_by_default(root, rel):
    fill(root, {"m.py": "", rel: ""})
    assert names(root) == ["m.py"]


def test_a_default_can_be_overruled_but_git_cannot(root):
    fill(root, {"n.ipynb": "", ".git/config": "", ".llmopsignore": "!*.ipynb\n!.git\n"})
    assert names(root) == [".llmopsignore", "n.ipynb"]


@pytest.mark.parametrize(
    ("rel", "shown"),
    [
        (".env", ".env"),
        ("conf/.env.local", "conf/.env.local"),
        (".envrc", ".envrc"),
        (".ssh/id_ed25519", ".ssh/"),
        ("deploy/ID_RSA", "deploy/ID_RSA"),
        (".aws/credentials", ".aws/"),
        (".kube/config", ".kube/"),
        (".git-credentials", ".git-credentials"),
        (".npmrc", ".npmrc"),
        ("tls/server.pem", "tls/server.pem"),
        ("tls/Server.KEY", "tls/Server.KEY"),
        (".huggingface/token", ".huggingface/"),
        (".bash_history", ".bash_history"),
        (".python_history", ".python_history"),
        (".docker/config.json", ".docker/config.json"),
        ("home/.config/gcloud/x.db", "home/.config/gcloud/"),
        (".databrickscfg", ".databrickscfg"),
        ("infra/terraform.tfstate", "infra/terraform.tfstate"),
        ("infra/terraform.tfstate.backup", "infra/terraform.tfstate.backup"),
        ("infra/prod.tfvars", "infra/prod.tfvars"),
        ("kubeconfig.yaml", "kubeconfig.yaml"),
        ("deploy/prod-kubeconfig.yml", "deploy/prod-kubeconfig.yml"),
        ("keys/id_rsa_work", "keys/id_rsa_work"),
        ("keys/id_ed25519_sk", "keys/id_ed25519_sk"),
        ("prod.env", "prod.env"),
        ("secrets.yaml", "secrets.yaml"),
    ],
)
def test_secrets_stay_at_home_and_are_named(root, rel, shown):
    fill(root, {"m.py": "", rel: "secret"})
    found = scan(root)
    assert list(found.files) == ["m.py"]
    assert found.left_out == (shown,)
    line = left_out_line(found.left_out)
    assert f"secrets: {shown}." in line
    assert f"!{shown} in .llmopsignore" in line


def test_a_secret_travels_only_where_our_own_ignore_file_says_so(root):
    fill(root, {"ca.pem": "public", "id_rsa": "s", ".gitignore": "!*\n"})
    assert scan(root).left_out == ("ca.pem", "id_rsa")
    fill(root, {".llmopsignore": "!ca.pem\n"})
    found = scan(root)
    assert found.left_out == ("id_rsa",)
    assert "ca.pem" in found.files


def test_what_the_user_ignores_is_not_reported_as_a_secret(root):
    fill(root, {"m.py": "", ".env": "s", ".gitignore": ".env\n"})
    assert scan(root).left_out == ()


@pytest.mark.parametrize(
    "name",
    [
        *("keys.py", "pem.py", "environment.yaml", "monkey", "env", "kubeconfig_of.py"),
        *("id_data.csv", "secrets.py", "my-kubeconfigs.md", "tfstate.md"),
    ],
)
def test_names_that_only_resemble_secrets_travel(root, name):
    fill(root, {name: ""})
    assert names(root) == [name]


@pytest.mark.parametrize("workspace", ["", "..", "alias"])
def test_a_home_folder_is_no_workspace(root, monkeypatch, workspace):
    fill(root / "home", {"m.py": "", "project/m.py": ""})
    (root / "home" / "project" / "link").symlink_to("m.py")
    (root / "alias").symlink_to("home")
    monkeypatch.setenv("HOME", str(root / "home"))
    folder = root / "alias" if workspace == "alias" else root / "home" / workspace
    with pytest.raises(WorkspaceError, match="your home folder") as caught:
        scan(folder)
    assert "--workspace" in caught.value.remedy
    assert names(root / "home" / "project") == ["link", "m.py"]


def test_the_root_folder_is_no_workspace():
    with pytest.raises(WorkspaceError, match="your home folder"):
        scan("/")


def test_links_inside_are_followed_and_loops_are_not(root):
    fill(root, {"real/x.py": "x", "m.py": "m"})
    (root / "link.py").symlink_to("real/x.py")
    (root / "folder").symlink_to(root / "real")
    (root / "real" / "up").symlink_to("..")
    files = scan(root).files
    assert [name for name in files if "up/up" in name] == []
    assert files["link.py"].sha256_16 == files["folder/x.py"].sha256_16 == digest_of(b"x")


def test_no_link_takes_a_secret_along_under_another_name(root):
    fill(root, {"m.py": "", ".env": "s", ".aws/credentials": "s", "keys/id_rsa": "s"})
    (root / "settings.txt").symlink_to(".env")
    (root / "again.txt").symlink_to("settings.txt")
    (root / "cloud").symlink_to(".aws")
    (root / "cloud.txt").symlink_to(".aws/credentials")
    (root / "hard.txt").hardlink_to(root / "keys/id_rsa")
    found = scan(root)
    assert list(found.files) == ["m.py"]
    ours = {".env", ".aws/", "keys/id_rsa"}
    links = {"settings.txt", "again.txt", "cloud/", "cloud.txt", "hard.txt"}
    assert set(found.left_out) == ours | links


def test_a_link_to_a_secret_that_the_user_includes_travels(root):
    fill(root, {"ca.pem": "public", ".llmopsignore": "!ca.pem\n"})
    (root / "authority.txt").symlink_to("ca.pem")
    assert scan(root).left_out == ()
    assert "authority.txt" in scan(root).files


def test_a_workspace_behind_a_link_is_fine(root, tmp_path):
    fill(root, {"real.py": "x"})
    (root / "link.py").symlink_to("real.py")
    (tmp_path / "alias").symlink_to(root)
    assert names(tmp_path / "alias") == ["link.py", "real.py"]


@pytest.mark.parametrize(
    ("target", "expected"),
    [("../secret.txt", "leaves the workspace"), ("/etc", "leaves"), ("gone", "does not exist")],
)
def test_a_link_that_leaves_or_dangles_is_refused_unless_ignored(root, target, expected):
    fill(root, {"../secret.txt": "s", "m.py": ""})
    (root / "link").symlink_to(target)
    with pytest.raises(WorkspaceError, match=expected) as caught:
        scan(root)
    assert "link" in caught.value.message
    assert ".llmopsignore" in caught.value.remedy
    fill(root, {".llmopsignore": "link\n"})
    assert "link" not in names(root)


def test_all_problems_are_reported_at_once(root):
    for number in range(12):
        (root / f"l{number:02}").symlink_to("/etc")
    with pytest.raises(WorkspaceError) as caught:
        scan(root)
    assert caught.value.message.count("leaves the workspace") == 10
    assert "and 2 more" in caught.value.message


@pytest.mark.parametrize("name", ["a\\b.txt", "c:x.txt", os.fsdecode(b"bad\xff.txt")])
def test_names_that_ray_would_drop_are_refused(root, name):
    (root / name).write_text("")
    with pytest.raises(WorkspaceError, match="cannot be uploaded"):
        scan(root)


def test_sockets_and_pipes_are_left_out(root):
    os.mkfifo(root / "pipe")
    fill(root, {"m.py": ""})
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(str(root / "s"))
        assert names(root) == ["m.py"]
    finally:
        server.close()


@pytest.mark.parametrize("locked", ["secret.py", "folder"])
def test_an_unreadable_file_or_folder_is_named(locked):
    base = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users.
    base.chmod(0o755)
    fill(base, {"secret.py": "x", "folder/y.py": "y"})
    (base / locked).chmod(0)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)  # root reads everything
        with pytest.raises(WorkspaceError, match=f"{locked}: cannot be read") as caught:
            scan(base, cache=base / "cache")
    finally:
        os.seteuid(user)
        (base / locked).chmod(0o700)
        shutil.rmtree(base)
    assert "readable" in caught.value.remedy


def test_a_missing_folder_or_a_file_is_no_workspace(root):
    fill(root, {"m.py": ""})
    for path in (root / "nowhere", root / "m.py"):
        with pytest.raises(WorkspaceError, match="not a folder"):
            scan(path)


def test_a_huge_folder_is_refused_early_with_counts(root):
    (root / "photos").mkdir()
    for number in range(workspace_module.MAX_FILES + 50):
        os.close(os.open(root / "photos" / f"{number}.jpg", os.O_CREAT | os.O_WRONLY))
    fill(root, {"a.py": "print()"})
    begin = time.process_time()
    with pytest.raises(WorkspaceError) as caught:
        scan(root)
    assert time.process_time() - begin < 5
    assert "photos (20,000 files)" in caught.value.message
    assert "limits 20,000 files" in caught.value.message


def test_huge_files_are_refused_before_they_are_read(root):
    fill(root, {"m.py": ""})
    with (root / "film.mkv").open("wb") as file:
        file.truncate(200 * 1024**3)  # Sparse: takes no space, would take minutes to hash.
    begin = time.process_time()
    with pytest.raises(WorkspaceError, match=r"film.mkv \(204800.0 MiB\)"):
        scan(root)
    assert time.process_time() - begin < 1


def test_hashes_are_remembered_and_an_edit_is_seen(root):
    fill(root, {"old.bin": "old", "new.py": "x = 1"})
    os.utime(root / "old.bin", (1, 1))
    first = scan(root)
    stamp = (root / "old.bin").stat()
    (root / "old.bin").write_text("OLD")  # Same size; the time is put back too.
    os.utime(root / "old.bin", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert scan(root).hashes["old.bin"] == first.hashes["old.bin"]
    # A file of this very moment is never trusted to its stamp.
    stamp = (root / "new.py").stat()
    (root / "new.py").write_text("x = 2")
    os.utime(root / "new.py", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert scan(root).hashes["new.py"] == digest_of(b"x = 2")


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"m.py": 3}', '{"m.py": [1, 2]}'])
def test_a_damaged_hash_cache_is_ignored(root, tmp_path, damage):
    fill(root, {"m.py": "m"})
    os.utime(root / "m.py", (1, 1))
    before = scan(root)
    (cached,) = (tmp_path / "cache" / "hashes").iterdir()
    cached.write_text(damage)
    assert scan(root) == before


def test_a_broken_pattern_names_the_folder(root):
    fill(root, {"m.py": "", ".gitignore": "!\n"})
    with pytest.raises(WorkspaceError, match="broken pattern"):
        scan(root)


def test_only_this_user_lists_what_is_remembered_of_a_workspace(root, tmp_path):
    fill(root, {"m.py": ""})
    os.utime(root / "m.py", (1, 1))
    folder = tmp_path / "cache" / "hashes"
    folder.mkdir(parents=True, mode=0o755)
    scan(root, cache=tmp_path / "cache")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir())
