"""Uploads a folder to a hub repository in one commit, or to a URL with its manifest last."""

from __future__ import annotations

import hashlib
import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from llmops_kernel.errors import ExportError, LLMOpsError
from llmops_kernel.export.weights import Located, Progress, write_adapter, write_merged
from llmops_kernel.store.export_job import MANIFEST, ExportJob, ExportLine
from llmops_kernel.tables.files import open_url
from llmops_kernel.version import VERSION


def write_hub(job: ExportJob, located: Located, folder: Path, progress: Progress) -> ExportLine:
    """Write the folder, then upload it. The target is checked first."""
    target = _Hub(job) if job.repo else _Url(job)
    target.check()
    notes: tuple[str, ...] = ("Adapter only: it needs its base model.",)
    if job.keep_adapter and located.is_adapter:
        write_adapter(job, located, folder, progress)
    else:
        notes = write_merged(job, located, folder, progress)
    progress(f"Uploading to {target.location}")
    target.upload(folder)
    return ExportLine(
        kind="done", notes=notes, command=target.command(located), location=target.location
    )


class _Hub:
    """A repository of the Hugging Face hub, or of a server with its API (HF_ENDPOINT)."""

    def __init__(self, job: ExportJob) -> None:
        from huggingface_hub import HfApi, get_token

        self._job = job
        self._repo = job.repo or ""
        self._token = get_token()
        self._api = HfApi(token=self._token)
        self.location = f"{self._api.endpoint}/{self._repo}"

    def check(self) -> None:
        """Raise ExportError without a token, and for a repository that has files already."""
        if not self._token:
            raise ExportError(
                "There is no token for the hub.",
                remedy="hf auth login, or set HF_TOKEN to a token that may write",
            )
        try:
            files = self._existing()
        except Exception as error:
            raise self._failed("read", error) from error
        if files and not self._job.replace:
            raise ExportError(
                f"{self.location} has files already: {', '.join(files[:3])}",
                remedy="choose another --repo, or add a commit to it with --force",
            )

    def _existing(self) -> list[str]:
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            files = self._api.list_repo_files(self._repo)
        except RepositoryNotFoundError:
            return []
        return [name for name in files if name not in (".gitattributes", "README.md")]

    def upload(self, folder: Path) -> None:
        """Create the repository where needed and upload in one commit: all of it or nothing."""
        try:
            self._api.create_repo(self._repo, private=self._job.private, exist_ok=True)
            self._api.upload_folder(
                repo_id=self._repo,
                folder_path=str(folder),
                commit_message=f"Upload of run {self._job.card.run_id} by llmops-kernel",
                ignore_patterns=[IGNORE_FILE, f"{IGNORE_FILE}/**"],
            )
        except Exception as error:
            raise self._failed("written", error) from error

    def _failed(self, action: str, error: Exception) -> ExportError:
        text = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
        if self._token:
            text = text.replace(self._token, "***")
        return ExportError(
            f"{self.location} cannot be {action}: {text}",
            remedy="check the name and that the token may write there: hf auth whoami",
        )

    def command(self, located: Located) -> str:
        if self._job.keep_adapter and located.is_adapter:
            return (
                "from peft import AutoPeftModelForCausalLM\n"
                f"model = AutoPeftModelForCausalLM.from_pretrained({self._repo!r})"
            )
        return f"vllm serve {shlex.quote(self._repo)} --host 127.0.0.1"


class _Url:
    """A folder of a bucket or another file system that fsspec knows."""

    def __init__(self, job: ExportJob) -> None:
        self._job = job
        self.location = (job.url or "").rstrip("/")
        try:
            self._files, self._root = open_url(self.location)
        except LLMOpsError as error:
            raise ExportError(error.message, remedy=error.remedy) from error

    def check(self) -> None:
        """Raise ExportError if there is anything but an earlier export with --force."""
        try:
            files = self._find()
        except Exception as error:
            raise self._failed("read", error) from error
        if files and MANIFEST not in files:
            raise ExportError(
                f"{self.location} has files that llmops export did not write: {files[0]}",
                remedy="choose another --path",
            )
        if files and not self._job.replace:
            raise ExportError(
                f"{self.location} exists.",
                remedy="replace it with --force, or choose another --path",
            )

    def upload(self, folder: Path) -> None:
        """Upload each file, then the manifest: where it is, all else is there too."""
        before: list[str] = []
        done: list[str] = []
        try:
            before = self._find()
            if MANIFEST in before:
                self._files.rm_file(f"{self._root}/{MANIFEST}")
            for name in files_of(folder):
                done.append(name)
                self._put(folder / name, name)
            for name in set(before) - set(done) - {MANIFEST}:
                self._files.rm_file(f"{self._root}/{name}")
            content = json.dumps(manifest_of(folder, self._job), indent=2) + "\n"
            self._files.pipe_file(f"{self._root}/{MANIFEST}", content.encode())
        except BaseException as error:
            for name in done:
                with suppress(Exception):
                    self._files.rm_file(f"{self._root}/{name}")
            if isinstance(error, Exception):
                raise self._failed("written", error) from error
            raise

    def _put(self, file: Path, name: str) -> None:
        target = f"{self._root}/{name}"
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._files.put_file(str(file), target)

    def _find(self) -> list[str]:
        with suppress(FileNotFoundError):
            paths: list[Any] = self._files.find(self._root)
            return sorted(str(path)[len(str(self._root)) :].lstrip("/") for path in paths)
        return []

    def _failed(self, action: str, error: Exception) -> ExportError:
        text = (str(error).strip().splitlines() or [""])[0]
        return ExportError(
            f"{self.location} cannot be {action}: {type(error).__name__}: {text}",
            remedy="check the URL and the credentials for it in this environment",
        )

    def command(self, located: Located) -> str:
        del located
        source, scheme = self.location, self.location.partition("://")[0]
        copy = {"s3": "aws s3 cp --recursive", "gs": "gcloud storage cp -r"}.get(scheme)
        if copy is not None:
            return f"{copy} {shlex.quote(source)} MODEL && vllm serve MODEL --host 127.0.0.1"
        code = (
            f"import fsspec; fs, at = fsspec.core.url_to_fs({source!r}); fs.get(at, 'MODEL', True)"
        )
        return f"python -c {shlex.quote(code)}"


# --- Manifest of an export; its presence says that all of it is there ---


IGNORE_FILE = ".llmopsignore"
_CHUNK_BYTES = 1 << 20


def files_of(folder: Path) -> list[str]:
    """Return the relative paths of an export's files, sorted, without the manifest."""
    paths = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return sorted(rel for rel in paths if rel not in (MANIFEST, IGNORE_FILE))


def manifest_of(folder: Path, job: ExportJob) -> dict[str, Any]:
    """Return size and SHA-256 of each file, and which run they are of."""
    return {
        "run": job.card.run_id,
        "target": job.target,
        "llmops_kernel": VERSION,
        "files": {
            rel: {"bytes": (folder / rel).stat().st_size, "sha256": _sha256(folder / rel)}
            for rel in files_of(folder)
        },
    }


def write_manifest(folder: Path, job: ExportJob) -> None:
    """Write it, and keep the folder out of the packages of later submissions."""
    content = json.dumps(manifest_of(folder, job), indent=2) + "\n"
    (folder / IGNORE_FILE).write_text("*\n")
    (folder / MANIFEST).write_text(content)


def _sha256(path: Path) -> str:
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            sha.update(chunk)
    return sha.hexdigest()
