"""Mines hard negatives: scores all texts for their vectors, and writes the rows with negatives."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.objectives import EmbedObjective, recorded
from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.row_formats import Fault, half_of, recognised, renamed, shaped
from llmops_kernel.errors import ConfigError, DataError, RunStateError
from llmops_kernel.kinds.reading import load
from llmops_kernel.metrics.hard_negatives import Choice, Rule, Vectors, choose, same
from llmops_kernel.services.scoring.model import run_with_model
from llmops_kernel.services.scoring.output import ScoredOutput
from llmops_kernel.services.scoring.runs import output_url
from llmops_kernel.store.files import is_pattern, scratch_folder, write_new, write_whole
from llmops_kernel.store.store import RunStore
from llmops_kernel.tables.files import table_files
from llmops_kernel.tables.reading import iter_parts, read_part
from llmops_kernel.views import format as fmt

Row = dict[str, Any]
_PART_ROWS = 1000
_NAMED = 3
_TABLE: Final = "texts.jsonl"


# --- The rows, and the texts of them ---


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A row: a query with a text that answers it."""

    query: str
    positive: str
    negatives: tuple[str, ...]
    """Those that it has already."""
    row: Row


@dataclass
class Notes:
    """What was left out, in sentences."""

    lines: list[str] = field(default_factory=list)

    def add(self, count: int, noun: str, what: str, names: Sequence[str] = ()) -> None:
        """Add `3 texts have no vector: "a", "b", "c"`, unless there are none."""
        if count:
            listed = ", ".join(f"{name[:60]!r}" for name in sorted(names)[:_NAMED])
            more = ", ..." if len(names) > _NAMED else ""
            self.lines.append(
                f"{counted(count, noun)} {what}{f': {listed}{more}' if names else ''}"
            )


def read_pairs(data: str | Path, notes: Notes) -> list[Pair]:
    """Return the rows of a table, or of the training rows of a config. Raises DataError.

    Rows of a config are read with its `columns`, `max_rows` and `on_error`.
    """
    path = str(data)
    if not path.endswith((".yaml", ".yml")):
        return _pairs_of(path, [Path.cwd()], {}, None, None)
    config = load(path, ())
    if not isinstance(config, TrainingConfig) or config.objective.type != "embed":
        raise ConfigError(
            f"{path} trains no vectors.",
            remedy="name a training config with `objective: embed`, or a table",
        )
    hooks = config.hooks.file and Path(path).parent / config.hooks.file
    if hooks and hooks.is_file() and "def format_example" in hooks.read_text():
        raise ConfigError(
            f"The rows of {path} are made by format_example of {config.hooks.file}, which is not"
            " called here.",
            remedy="write the rows that it makes into a file, and name that",
        )
    skipped: list[str] | None = [] if config.data.on_error == "skip" else None
    roots = [Path(path).resolve().parent, Path.cwd()]
    pairs = []
    for source in config.data.sources:
        pairs += _pairs_of(source.path, roots, source.columns or {}, config.data.max_rows, skipped)
        if source.weight != 1:
            notes.add(1, "source", f"has a weight, which the new file has not: {source.words}")
    notes.add(len(skipped or ()), "row", f"left out, as data.on_error says: {(skipped or [''])[0]}")
    if config.data.columns:
        notes.lines.append("The new file has the fields' own names: leave data.columns out")
    return pairs


def _pairs_of(
    path: str,
    roots: Sequence[Path],
    columns: Mapping[str, str],
    limit: int | None,
    skipped: list[str] | None,
) -> list[Pair]:
    pairs = []
    for number, values, error in _rows(path, roots, limit):
        pair = error or _pair(values, columns)
        if isinstance(pair, Pair):
            pairs.append(pair)
            continue
        line = f"{path}, row {number}: {pair.message}."
        if skipped is None:
            raise DataError(line, remedy=f"{pair.hint or 'correct or delete the row'}")
        skipped.append(line)
    if not pairs:
        raise DataError(f"{path} has no rows.", remedy="check the file")
    return pairs


def _rows(
    path: str, roots: Sequence[Path], limit: int | None = None
) -> Iterator[tuple[int, Row, Fault | None]]:
    files = table_files(path, roots=roots, hashed=False)
    if len(files) > 1 and not is_pattern(path):
        raise DataError(
            f"{path} has {len(files)} tables, such as {files[0].name}.",
            remedy=f"name those that are meant by a pattern, as {path.rstrip('/')}/train*",
        )
    for part in iter_parts(files, part_rows=_PART_ROWS, limit=limit, first_row=1):
        for row in read_part(part).rows:
            yield row.number, row.values, Fault(row.error, "") if row.error else None


def _pair(values: Row, columns: Mapping[str, str]) -> Pair | Fault:
    row = renamed(values, columns)
    if isinstance(row, Fault):
        return row
    if recognised(row, "pairs") == "scored_pairs":
        return Fault("has a score and no positive", "give rows of `query` and `positive`")
    read = shaped(row, "pairs")
    if isinstance(read, Fault):
        return read
    query, positive, *negatives = (part["text"] for part in read["parts"])
    if "negatives" not in row:  # `negative` becomes a list.
        row = {name: value for name, value in row.items() if name != "negative"}
    return Pair(query=query, positive=positive, negatives=tuple(negatives), row=row)


def read_corpus(name: str, notes: Notes) -> list[str]:
    """Return the texts of `FILE` or `FILE:COLUMN`; default the column `text`. Raises DataError."""
    path, _, column = name.rpartition(":")
    if not path or "/" in column or Path(name).exists():
        path, column = name, ""
    column = column or "text"
    texts, empty = [], 0
    for number, values, error in _rows(path, [Path.cwd()]):
        if error or column not in values:
            raise DataError(
                f"{path}, row {number}: {error.message if error else f'no column {column!r}'}.",
                remedy=f"name the column with the texts, as {path}:COLUMN, or correct the row",
            )
        text = values[column]
        is_text = isinstance(text, str) and text.strip() and not half_of(text)
        texts += [text] if is_text else []
        empty += not is_text
    notes.add(empty, "row", f"of {path} left out: {column!r} is empty or no text")
    return texts


# --- Mining: a scoring of all texts, then the choice ---


@dataclass(frozen=True, kw_only=True)
class Mined:
    """What was found and written."""

    path: Path
    scored: str
    """The scoring that has the vectors."""
    rows: Sequence[Row]
    """The rows that were written."""
    queries: int
    documents: int
    """Texts that were compared with each query."""
    fewer: Mapping[str, int]
    """Rows with fewer negatives than asked for, by the reason."""
    similarity_positive: float | None
    """Median over queries and their positives; None without any."""
    similarity_negative: float | None
    notes: tuple[str, ...]
    """What was left out."""

    def __str__(self) -> str:
        negatives = sum(len(row["negatives"]) for row in self.rows)
        none = sum(not row["negatives"] for row in self.rows)
        lines = [
            f"{self.path}: {counted(len(self.rows), 'row')} with {counted(negatives, 'negative')},"
            f" of {counted(self.documents, 'text')}",
            f"Median similarity of a query: {fmt.number(self.similarity_positive)} to a positive,"
            f" {fmt.number(self.similarity_negative)} to a negative",
            *(f"{counted(n, 'row')} with fewer: {why}" for why, n in self.fewer.items()),
        ]
        if none:
            what = "without negatives: the loss infonce trains on them, triplet refuses them"
            lines.append(f"{counted(none, 'row')} {what}")
        return "\n".join((*lines, *self.notes))

    __repr__ = __str__


class Mining:
    """The rows with the run whose model compares them.

    Raises ConfigError, DataError, RunNotFoundError, RunStateError, before anything is started.
    """

    def __init__(
        self,
        data: str | Path,
        run: str,
        output: str | Path | None = None,
        *,
        store: RunStore,
        rule: Rule,
        corpus: str | None = None,
        force: bool = False,
    ) -> None:
        self._store, self._rule, self._force = store, rule, force
        self.run = run_with_model(run, store)
        objective = recorded(store.record(self.run).config)
        if not isinstance(objective, EmbedObjective):
            raise RunStateError(
                f"The model of run {self.run} makes no vectors: its objective is {objective.type}.",
                remedy="name a training run with `objective: embed`",
            )
        self.path = Path(output) if output else _beside(data)
        if self.path.exists() and not force:
            raise _exists(self.path)
        self._notes = Notes()
        self._pairs = read_pairs(data, self._notes)
        texts = {text for pair in self._pairs for text in (pair.positive, *pair.negatives)}
        self._documents = sorted(texts.union(read_corpus(corpus, self._notes) if corpus else ()))
        """By their text, which so decides between equal similarities."""
        self._queries = list(dict.fromkeys(pair.query for pair in self._pairs))
        self._prefixes = objective.prefixes

    @contextmanager
    def scoring(self) -> Iterator[tuple[ScoreConfig, Path]]:
        """Give the config of the scoring and its workspace, which are there inside the block."""
        texts = sorted({*self._prefixed(self._queries, 0), *self._prefixed(self._documents, 1)})
        with scratch_folder("llmops-mine") as folder:
            lines = (json.dumps({"text": text}) + "\n" for text in texts)
            (folder / _TABLE).write_text("".join(lines))
            values = {
                "name": "mine",
                "model": {"run": self.run},
                "input": _TABLE,
                "prompt": {"column": "text", "chat": False},
                "task": {"type": "embed", "side": "none"},
                "evaluation": {"samples": 0},
            }
            yield ScoreConfig.model_validate(values), folder

    def check_scored(self, run_id: str) -> None:
        """Raise RunStateError for a scoring with another model."""
        model = self._store.record(run_id).config.get("model") or {}
        if not isinstance(model, Mapping) or model.get("run") != self.run:
            raise RunStateError(
                f"{run_id} is no scoring with the model of run {self.run}.",
                remedy="leave --scored out: the texts are then scored",
            )

    def write(self, run_id: str) -> Mined:
        """Choose with the vectors of a scoring that has ended, and write the rows.

        Raises ComparisonError where it has not, DataError where it has other texts, ConfigError
        where the file exists meanwhile.
        """
        self.check_scored(run_id)
        output = ScoredOutput(output_url(self._store, self._store.record(run_id)), name=run_id)
        queries = self._vectors(output, self._prefixed(self._queries, 0))
        documents = self._vectors(output, self._prefixed(self._documents, 1))
        mined = self._mined(queries, documents, run_id)
        data = b"".join(map(_line, mined.rows))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            (write_whole if self._force else write_new)(self.path, data)
        except FileExistsError:
            raise _exists(self.path) from None
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written: {error.strerror}.",
                remedy=f"choose another file, and go on with --scored {run_id}",
            ) from error
        return mined

    def _prefixed(self, texts: Sequence[str], side: int) -> list[str]:
        return [self._prefixes[side] + text for text in texts]

    def _vectors(self, output: ScoredOutput, texts: Sequence[str]) -> Vectors:
        """Return a vector of length 1 for each text; NaN where the scoring has none."""
        places = {text: place for place, text in enumerate(texts)}
        vectors: Vectors | None = None
        missing = set(places)
        for table in output.read(["text", "embedding"]):
            rows = zip(table.column("text").to_pylist(), table.column("embedding"), strict=True)
            for text, scored in rows:
                place = places.get(text)
                missing.discard(text)
                if place is None or not scored.is_valid:
                    continue
                vector = np.asarray(scored.values, np.float64)
                if vectors is None:
                    vectors = np.full((len(texts), len(vector)), np.nan, np.float32)
                length = np.linalg.norm(vector)
                if np.isfinite(length) and length > 0:
                    vectors[place] = vector / length
        if missing:
            raise DataError(
                f"{output.name} has {len(texts) - len(missing):,} of {len(texts):,} texts: not"
                f" {min(missing)[:60]!r}.",
                remedy="the rows have changed since: leave --scored out, and they are scored",
            )
        if vectors is None:
            raise DataError(
                f"{output.name} has a vector of none of {counted(len(texts), 'text')}.",
                remedy=f"see why in the column `error` of {output.url}",
            )
        return vectors

    def _mined(self, queries: Vectors, documents: Vectors, run_id: str) -> Mined:
        """Return the figures, with the rows and their negatives."""
        known = np.flatnonzero(np.isfinite(documents).all(1)).tolist()
        first: dict[str, int] = {}
        for place in known:
            first.setdefault(same(self._documents[place]), place)
        order = [*first.values(), *sorted({*known} - {*first.values()})]
        texts = [self._documents[place] for place in order]
        usable, positives, excluded = self._known_pairs(queries, texts, [*first])
        choices = choose(
            queries[usable],
            documents[order],
            candidates=len(first),
            positives=positives,
            excluded=excluded,
            rule=self._rule,
        )
        chosen = {self._queries[n]: choice for n, choice in zip(usable, choices, strict=True)}
        self._add_notes(queries, documents, chosen, variants=len(known) - len(first))
        rows, fewer = [], Counter[str]()
        for pair in self._pairs:
            choice = chosen.get(pair.query)
            fewer[_WHY[choice.why if choice else "vector"]] += 1
            own = () if self._rule.replace else pair.negatives
            mined = [texts[place] for place in choice.places] if choice else []
            rows.append({**pair.row, "negatives": [*own, *mined]})
        del fewer[""]
        return Mined(
            path=self.path,
            scored=run_id,
            rows=rows,
            queries=len(self._queries),
            documents=len(first),
            fewer=dict(fewer),
            similarity_positive=_median(s for one in chosen.values() for s in one.positives),
            similarity_negative=_median(s for one in chosen.values() for s in one.similarities),
            notes=tuple(self._notes.lines),
        )

    def _known_pairs(
        self, queries: Vectors, texts: Sequence[str], candidates: Sequence[str]
    ) -> tuple[list[int], list[list[int]], list[list[int]]]:
        """Return the queries that can be compared, and of each its positives and what is known.

        All rows of a query share what they say of it. A query and a positive need a vector.
        """
        answers: dict[str, set[str]] = defaultdict(set)
        others: dict[str, set[str]] = defaultdict(set)
        for pair in self._pairs:
            answers[same(pair.query)].add(pair.positive)
            others[same(pair.query)].update(() if self._rule.replace else pair.negatives)
        place_of = {text: place for place, text in enumerate(texts)}
        candidate_of = {text: place for place, text in enumerate(candidates)}
        usable, positives, excluded = [], [], []
        for number, query in enumerate(self._queries):
            name = same(query)
            own = sorted(place_of[text] for text in answers[name] if text in place_of)
            if not own or not np.isfinite(queries[number]).all():
                continue
            seen = {name, *map(same, answers[name] | others[name])}
            usable.append(number)
            positives.append(own)
            excluded.append(sorted(candidate_of[text] for text in seen if text in candidate_of))
        return usable, positives, excluded

    def _add_notes(
        self, queries: Vectors, documents: Vectors, chosen: Mapping[str, Choice], *, variants: int
    ) -> None:
        for what, names, vectors in (
            ("query text", self._queries, queries),
            ("document text", self._documents, documents),
        ):
            lost = [names[n] for n in np.flatnonzero(~np.isfinite(vectors).all(1))]
            self._notes.add(len(lost), what, "without a vector", lost)
        self._notes.add(
            variants, "document text", "like another one but for case and spaces: not chosen"
        )
        above = [choice.above for choice in chosen.values() if choice.above]
        what = f"with others above the margin, {sum(above):,} in all, which may answer them too"
        self._notes.add(len(above), "query text", what)


_WHY: Final = {
    "": "",
    "margin": "the others are above the margin",
    "texts": "there are no more texts",
    "vector": "no vector of the query, or of a positive",
}


def _median(values: Iterable[float]) -> float | None:
    numbers = [*values]
    return median(numbers) if numbers else None


def _beside(data: str | Path) -> Path:
    """Return where the rows are written by default: `rows-mined.jsonl` for `data/rows.jsonl`."""
    path = Path(str(data).rpartition("://")[2].rstrip("/*"))
    stem = path.name.partition(".")[0] or "rows"
    return (Path() if "://" in str(data) else path.parent) / f"{stem}-mined.jsonl"


def _exists(path: Path) -> ConfigError:
    return ConfigError(
        f"{path} already exists.",
        remedy="choose another file, or overwrite it with --force (`force=True` in Python)",
    )


def _line(row: Row) -> bytes:
    """Return a row as a line of JSON; what JSON has no form for, such as a date, as text."""
    try:
        return f"{json.dumps(row, ensure_ascii=False, default=str)}\n".encode()
    except UnicodeEncodeError:  # Half of a character.
        return f"{json.dumps(row, default=str)}\n".encode()
