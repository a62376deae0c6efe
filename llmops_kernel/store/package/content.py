"""The content of files that a run reads but that do not travel with it: its data and its model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from llmops_kernel.store.files import find, is_pattern
from llmops_kernel.store.package.hashes import HashCache

MOST_BYTES = 1 << 30
"""Files of one source are hashed up to so much together: seconds of one core, once per machine."""
MOST_FILES = 1000
_MODEL_FILES = (".safetensors", ".bin", ".pt", ".gguf", ".json", ".jinja", ".model", ".txt", ".py")


def data_content(
    names: Iterable[str], roots: Sequence[Path], *, most_bytes: int = MOST_BYTES
) -> dict[str, str | None]:
    """Return the content hash of each file that a config names, folders and patterns resolved.

    None for a URL, a hub id, and files of one name that have more than `most_bytes` together.
    """
    content: dict[str, str | None] = {}
    for name in names:
        content |= _hashes(name, list(_files(name, roots)), most_bytes=most_bytes)
    return content


def model_content(source: str, revision: str | None = None) -> dict[str, str | None]:
    """Return the hashes of a model folder's files, or the commit of a hub id that is on disk."""
    folder = Path(source)
    if not folder.is_dir():
        return {"revision": _commit(source, revision)}
    files = [path for path in sorted(folder.iterdir()) if path.suffix in _MODEL_FILES]
    return _hashes("", [(path.name, path) for path in files], most_bytes=MOST_BYTES)


def _files(name: str, roots: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield name and path of each file; none for a URL or a hub id."""
    if "://" in name:
        return
    if is_pattern(name):
        pattern = Path(name).expanduser()
        if pattern.is_absolute():
            inside = str(pattern.relative_to(pattern.anchor))
            yield from ((str(path), path) for path in sorted(Path(pattern.anchor).glob(inside)))
            return
        # Of files with the same name that of the first root counts: it replaces the others.
        every = ((path, root) for root in reversed(roots) for path in sorted(root.glob(name)))
        yield from ((str(path.relative_to(root)), path) for path, root in every)
    elif (path := find(name, roots)) is not None and path.is_dir():
        inner = (file for file in sorted(path.rglob("*")) if file.is_file())
        yield from ((f"{name.rstrip('/')}/{file.relative_to(path)}", file) for file in inner)
    elif path is not None:
        yield name, path


def _hashes(
    source: str, files: list[tuple[str, Path]], *, most_bytes: int
) -> dict[str, str | None]:
    if not files or len(files) > MOST_FILES:
        return {source: None}
    try:
        infos = [path.stat() for _, path in files]
        if sum(info.st_size for info in infos) > most_bytes:
            return {name: None for name, _ in files}
        # A cache of its own: that of a workspace forgets what it was not asked for.
        with HashCache(Path(f"{files[0][1].resolve().parent}#inputs")) as hashes:
            return {
                name: hashes.of(name, path=path, info=info)
                for (name, path), info in zip(files, infos, strict=True)
            }
    except (OSError, ValueError):
        return {name: None for name, _ in files}


def _commit(source: str, revision: str | None) -> str | None:
    """Return the commit of a hub id's snapshot on this disk; the network is not asked."""
    try:
        from huggingface_hub import try_to_load_from_cache

        path = try_to_load_from_cache(source, "config.json", revision=revision)
    except Exception:  # No such package, or a name that is no hub id.
        return None
    return Path(path).parent.name if isinstance(path, str) else None
