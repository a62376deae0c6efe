"""The workspace as it is now: every file that travels, with the hash of its content.

Links are followed as long as they stay inside the workspace. One that leaves it is refused: its
target, such as a data disk or `~/.ssh`, would be uploaded without having been asked for.
"""

from __future__ import annotations

import fnmatch
import ntpath
import os
import pwd
import re
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from llmops_kernel.errors import WorkspaceError
from llmops_kernel.store import paths
from llmops_kernel.store.package.hashes import HashCache

MAX_FILES = 20_000
MAX_BYTES = 1024**3
"""Before compression; a package may have 100 MiB after it."""

_TRIM = "list what the run does not need in .llmopsignore (same syntax as .gitignore)"


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    size_bytes: int
    sha256_16: str
    """First 16 hex digits of the content's SHA-256."""
    executable: bool = False


@dataclass(frozen=True)
class Workspace:
    root: Path
    files: dict[str, FileEntry]
    """The files by path relative to `root`, with `/`, sorted."""
    left_out: tuple[str, ...] = ()
    """Files and folders (with a `/` at the end) that were left out as secrets, sorted."""
    ignored: tuple[str, ...] = ()
    """Those that the workspace's own ignore files keep at home."""

    @property
    def hashes(self) -> dict[str, str]:
        """Return content hashes by relative path, as the run record keeps them."""
        return {rel: entry.sha256_16 for rel, entry in self.files.items()}

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.files.values())


def scan(root: Path | str, *, cache: Path | None = None) -> Workspace:
    """List and hash the files of the workspace that its ignore rules let through.

    Hashes are remembered below `cache` (default the user's cache folder). Raises
    WorkspaceError for a missing folder, unreadable files, links that leave the
    workspace, names that cannot travel, and a folder too large to be meant.
    """
    base = Path(root).absolute()
    if not base.is_dir():
        raise WorkspaceError(
            f"Workspace {base} is not a folder.", remedy="give the folder that contains your code"
        )
    _check_not_home(base)
    walk = _Walk(base)
    walk.run()
    files: dict[str, FileEntry] = {}
    with HashCache(base, folder=cache) as hashes:
        for rel, file in sorted(walk.walked.items()):
            entry = _file_entry(rel, file, hashes=hashes, problems=walk.problems)
            if entry is not None:
                files[rel] = entry
    _raise_problems(walk.problems, base)
    return Workspace(base, files, tuple(sorted(walk.secrets)), tuple(walk.ignored))


def _check_not_home(base: Path) -> None:
    """Raise WorkspaceError for the user's home folder and for folders around it, such as `/`."""
    real = base.resolve()
    for home in _homes() or {Path("/")}:
        if home.is_relative_to(real):
            problem = "is your home folder" if real == home else f"contains your home folder {home}"
            raise WorkspaceError(
                f"Workspace {base} {problem}: everything in it would be uploaded.",
                remedy="put the config and your code into a folder of their own, or name the"
                " folder that contains your code as workspace (--workspace)",
            )


def _homes() -> set[Path]:
    """Return the home folder by HOME and by the user database; they may differ."""
    homes = set()
    with suppress(RuntimeError):
        homes.add(Path.home().resolve())
    with suppress(KeyError):
        homes.add(Path(pwd.getpwuid(os.getuid()).pw_dir).resolve())
    return homes


@dataclass(frozen=True)
class _WalkedFile:
    path: Path
    info: os.stat_result


@dataclass
class _Walk:
    """Collects files and the problems of others, so that all problems are reported at once."""

    root: Path
    walked: dict[str, _WalkedFile] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    size_bytes: int = 0
    _secret_inodes: set[tuple[int, int]] = field(default_factory=set)
    """Inodes of secrets that have a second name (hard links)."""

    def run(self) -> None:
        self.real_root = self.root.resolve()
        self.our_folders = {paths.home().resolve(), paths.cache().resolve()}
        self.usual = IgnoreRules.default()
        self._folder(self.root, "", self.usual, (self.real_root,))
        for rel, file in list(self.walked.items()):
            if (file.info.st_dev, file.info.st_ino) in self._secret_inodes:
                del self.walked[rel]
                self.secrets.append(rel)

    def _folder(self, folder: Path, rel: str, rules: IgnoreRules, above: tuple[Path, ...]) -> None:
        entries = self._entries(folder, rel)
        names = {entry.name for entry in entries}
        if rel and names & _ENVIRONMENTS:
            return
        rules = rules.inside(folder, rel=rel, names=names)
        for entry in entries:
            path = f"{rel}/{entry.name}" if rel else entry.name
            is_folder = entry.is_dir()
            if rules.ignores(path, is_folder=is_folder):
                self._ignore(path, is_folder=is_folder)
                continue
            if rules.leaves_out_secret(path, is_folder=is_folder):
                self.secrets.append(f"{path}/" if is_folder else path)
                self._note_inode(entry, is_folder=is_folder)
                continue
            if entry.is_symlink():
                if not self._stays_inside(entry, path):
                    continue
                if self._leads_to_secret(entry, rules):
                    self.secrets.append(f"{path}/" if is_folder else path)
                    continue
            if not is_folder:
                self._file(entry, path)
                continue
            real = Path(entry.path).resolve() if entry.is_symlink() else above[-1] / entry.name
            # A link to a folder above it would be followed forever; the store holds what was sent.
            if real not in above and real not in self.our_folders:
                self._folder(Path(entry.path), path, rules, (*above, real))

    def _ignore(self, path: str, *, is_folder: bool) -> None:
        """Note it unless it is what nobody would send, or a secret."""
        is_usual = self.usual.ignores(path, is_folder=is_folder) or is_secret(path)
        if not is_usual and len(self.ignored) < MAX_FILES:
            self.ignored.append(f"{path}/" if is_folder else path)

    def _entries(self, folder: Path, rel: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.problems.append(f"{rel or '.'}: cannot be read ({error.strerror})")
            return []

    def _stays_inside(self, entry: os.DirEntry[str], rel: str) -> bool:
        target = Path(entry.path).resolve()
        if not target.exists():
            self.problems.append(f"{rel}: link to {os.readlink(entry.path)}, which does not exist")
            return False
        if not target.is_relative_to(self.real_root):
            self.problems.append(f"{rel}: link that leaves the workspace, to {target}")
            return False
        return True

    def _note_inode(self, entry: os.DirEntry[str], *, is_folder: bool) -> None:
        with suppress(OSError):
            info = entry.stat()
            if not is_folder and info.st_nlink > 1:
                self._secret_inodes.add((info.st_dev, info.st_ino))

    def _leads_to_secret(self, entry: os.DirEntry[str], rules: IgnoreRules) -> bool:
        """Return whether a link gives a secret, or what is in a folder of them, another name."""
        target = Path(entry.path).resolve()
        inside = target.relative_to(self.real_root)
        return any(
            rules.leaves_out_secret(part.as_posix(), is_folder=part != inside or target.is_dir())
            for part in (inside, *inside.parents)
            if part.name
        )

    def _file(self, entry: os.DirEntry[str], rel: str) -> None:
        try:
            info = entry.stat()
        except OSError:
            return  # Gone since the folder was listed: an editor's temporary file.
        if not stat.S_ISREG(info.st_mode):
            return  # Sockets and pipes have no content to send.
        if not _can_travel(rel):
            self.problems.append(f"{rel!r}: the name has characters that a zip file cannot contain")
            return
        self.walked[rel] = _WalkedFile(Path(entry.path), info)
        self.size_bytes += info.st_size
        if len(self.walked) > MAX_FILES or self.size_bytes > MAX_BYTES:
            raise self._too_large()

    def _too_large(self) -> WorkspaceError:
        count, size = len(self.walked), mebibytes(self.size_bytes)
        tops = Counter(rel.partition("/")[0] for rel in self.walked)
        largest = ", ".join(f"{name} ({number:,} files)" for name, number in tops.most_common(3))
        sizes = {rel: file.info.st_size for rel, file in self.walked.items()}
        return WorkspaceError(
            f"Workspace {self.root} is too large: {count:,} files with {size} seen so far "
            f"(limits {MAX_FILES:,} files, {mebibytes(MAX_BYTES)}). Most files: {largest}. "
            f"Biggest: {biggest(sizes)}.",
            remedy=f"use a folder that contains only this project's code, or {_TRIM}",
        )


def _file_entry(
    rel: str, file: _WalkedFile, *, hashes: HashCache, problems: list[str]
) -> FileEntry | None:
    try:
        digest = hashes.of(rel, path=file.path, info=file.info)
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append(f"{rel}: cannot be read ({error.strerror})")
        return None
    return FileEntry(
        size_bytes=file.info.st_size,
        sha256_16=digest,
        executable=bool(file.info.st_mode & stat.S_IXUSR),
    )


def _can_travel(rel: str) -> bool:
    """Return False for names with backslashes or drive letters: Ray's unzip silently omits them."""
    try:
        rel.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in rel and "\0" not in rel and not ntpath.splitdrive(rel)[0]


def _raise_problems(problems: list[str], root: Path) -> None:
    if not problems:
        return
    listing = "\n".join(f"  {problem}" for problem in problems[:10])
    rest = f"\n  and {len(problems) - 10} more" if len(problems) > 10 else ""
    raise WorkspaceError(
        f"The workspace {root} cannot be uploaded:\n{listing}{rest}",
        remedy=f"make the files readable and links point inside the workspace, or {_TRIM}; "
        "give large data by an absolute path or a URL in the config",
    )


def biggest(sizes: dict[str, int], *, count: int = 5) -> str:
    """Return the largest files as text for messages."""
    top: Iterable[tuple[str, int]] = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{rel} ({mebibytes(size)})" for rel, size in list(top)[:count])


def mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / 1024**2:.1f} MiB"


# --- Excluded files: ignore files at each level, and sane defaults ---


IGNORE_FILES = (".gitignore", ".rayignore", ".llmopsignore")
"""Files with the syntax of `.gitignore`; inside one folder the later file takes precedence."""
_OURS = IGNORE_FILES[-1]

DEFAULT_EXCLUDES = (
    ".git",
    ".hg",
    ".svn",
    ".venv",
    "venv",
    "__pycache__",
    "*.py[co]",
    "*.egg-info",
    ".eggs",
    ".tox",
    ".nox",
    ".cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "node_modules",
    ".ipynb_checkpoints",
    # Saving a notebook must not make the code look new; nothing on the cluster opens it.
    "*.ipynb",
    ".idea",
    ".vscode",
    ".DS_Store",
    ".#*",
    "*.swp",
    # What runs and trackers write.
    "checkpoint-[0-9]*/",
    "wandb/",
    "mlruns/",
)
"""`!pattern` in an ignore file of the workspace includes a file again. Secrets are in
`secret_files`."""

_ENVIRONMENTS = frozenset({"pyvenv.cfg", "conda-meta"})
"""Of which a folder has one if it is a Python environment, whatever its name: nothing of it is
sent. The nodes have their own."""

_NEVER = frozenset({".git", ".llmops"})
"""`.llmops` holds the package's own metadata."""


@dataclass(frozen=True)
class IgnoreRules:
    """The patterns that hold in one folder: its own before its parents'."""

    levels: tuple[tuple[str, GitIgnoreSpec], ...]
    own_levels: tuple[tuple[str, GitIgnoreSpec], ...] = ()
    """The patterns among them of `.llmopsignore` files: only they can include a secret."""

    @classmethod
    def default(cls) -> IgnoreRules:
        return cls((("", GitIgnoreSpec.from_lines(DEFAULT_EXCLUDES)),))

    def inside(self, folder: Path, *, rel: str, names: Collection[str]) -> IgnoreRules:
        """Return the rules inside `folder`; `rel` is its path in the workspace."""
        lines_by_file = {name: _lines(folder / name) for name in IGNORE_FILES if name in names}
        lines = [line for of_file in lines_by_file.values() for line in of_file]
        if not lines:
            return self
        prefix = f"{rel}/" if rel else ""
        own_levels = self.own_levels
        try:
            spec = GitIgnoreSpec.from_lines(lines)
            if of_ours := lines_by_file.get(_OURS):
                own_levels = (*own_levels, (prefix, GitIgnoreSpec.from_lines(of_ours)))
        except ValueError as error:
            raise WorkspaceError(
                f"An ignore file in {folder} has a broken pattern: {error}",
                remedy=f"correct it; the files are {', '.join(IGNORE_FILES)}",
            ) from error
        return IgnoreRules((*self.levels, (prefix, spec)), own_levels)

    def ignores(self, rel: str, *, is_folder: bool) -> bool:
        if rel.rpartition("/")[2] in _NEVER:
            return True
        return _decision(self.levels, f"{rel}/" if is_folder else rel) is True

    def leaves_out_secret(self, rel: str, *, is_folder: bool) -> bool:
        """Return whether a file stays at home for its name, which no `.llmopsignore` includes."""
        if not is_secret(rel):
            return False
        return _decision(self.own_levels, f"{rel}/" if is_folder else rel) is not False


def _decision(levels: tuple[tuple[str, GitIgnoreSpec], ...], path: str) -> bool | None:
    for prefix, spec in reversed(levels):
        decision = spec.check_file(path[len(prefix) :]).include
        if decision is not None:
            return decision
    return None


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, IsADirectoryError):
        return []
    except OSError as error:
        raise WorkspaceError(
            f"Cannot read {path}: {error.strerror}", remedy=f"make {path.name} readable"
        ) from error
    return text.splitlines()


# --- Excluded files that usually hold secrets ---
# What travels is kept in the store, in Ray's package store and on each node of the cluster, where
# others may read it. The names are those of the tools that write them; a secret under a name of
# the user's own is not found. `!NAME` in `.llmopsignore` includes a file.


SECRETS = (
    *(".env", ".env.*", "*.env", ".envrc", ".envrc.*", ".netrc", "_netrc", ".authinfo*"),
    # Keys: a suffix tells several of one kind apart (id_rsa_work).
    *(".ssh", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".gnupg", ".password-store"),
    *("*.pem", "*.key", "*.ppk", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ovpn"),
    *(".secrets", "secrets.json", "secrets.toml", "secrets.yaml", "secrets.yml", "secrets.ini"),
    # Clouds, clusters and object stores.
    *(".aws", ".azure", ".kube", "kubeconfig", "kubeconfig.json", "kubeconfig-*"),
    *("kubeconfig.y*ml", "kubeconfig_*.y*ml"),
    *("*.kubeconfig", "*-kubeconfig.y*ml", "*_kubeconfig.y*ml", ".boto", ".s3cfg", ".vault-token"),
    *("credentials.json", "application_default_credentials.json", "client_secret*.json"),
    *("service-account*.json", "service_account*.json", ".config/gcloud", ".config/rclone"),
    *("rclone.conf", ".rclone.conf", ".passwd-s3fs", ".mc/config.json", ".oci", ".config/doctl"),
    *(".docker/config.json", ".dockercfg", ".config/containers", ".config/gh"),
    *(".databrickscfg", ".snowsql", ".snowflake", ".dbt/profiles.yml"),
    # Terraform keeps passwords in its state and in the values of its variables.
    *(".terraform.d", ".terraformrc", "terraform.rc", "*.tfstate", "*.tfstate.*", "*.tfvars"),
    *("*.tfvars.json",),
    # Package registries, databases, hubs.
    *(".git-credentials", ".npmrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd"),
    *("pip.conf", ".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml"),
    *(".huggingface", ".kaggle", "kaggle.json", ".comet.config", ".streamlit/secrets.toml"),
    *(".jupyter", ".wgetrc", ".curlrc"),
    # What was typed.
    *(".*_history", ".histfile", ".zhistory", ".lesshst", ".viminfo", ".ipython"),
)
"""Names of files and folders, some with the folder before them; upper and lower case alike."""

_MAX_SHOWN = 8


def _matcher(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns), re.IGNORECASE)


_NAMES = _matcher([pattern for pattern in SECRETS if "/" not in pattern])
_PAIRS = _matcher([pattern for pattern in SECRETS if "/" in pattern])


def is_secret(rel: str) -> bool:
    """Return whether a file or folder usually holds secrets, by its path in the workspace."""
    parts = rel.rsplit("/", 2)
    return bool(_NAMES.match(parts[-1]) or _PAIRS.match("/".join(parts[-2:])))


def left_out_line(left_out: Sequence[str]) -> str:
    """Return the sentence about what stayed at home; empty if nothing did."""
    if not left_out:
        return ""
    num_more = len(left_out) - _MAX_SHOWN
    listing = ", ".join(left_out[:_MAX_SHOWN]) + (f" and {num_more} more" if num_more > 0 else "")
    return (
        f"Not uploaded, as such files usually hold secrets: {listing}."
        f" If a run needs one, include it by a line such as !{left_out[0]} in .llmopsignore"
    )
