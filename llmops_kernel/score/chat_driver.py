"""The driver of one turn of a chat: `python -m llmops_kernel.score.chat_driver`."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.score import ChatConfig
from llmops_kernel.driver.queue_place import capacity_of
from llmops_kernel.driver.report import DriverReport, failure_of
from llmops_kernel.driver.storage import ray_logs
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.metrics.events import EndEvent
from llmops_kernel.score.chat_engines import (
    AnswerReader,
    AnswerStream,
    Engines,
    ModelTurn,
    by_engine,
    end_all,
    model_turns,
)
from llmops_kernel.store.record import RunSpec

ONE_AFTER_THE_OTHER = (
    "There is not enough free memory for both models at once, so they answer one after the other."
)
_ASK_AGAIN = "ask again; `llmops logs` has the traceback"


class ChatDriver:
    """Asks the models of one turn and journals their answers."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._config = ChatConfig.model_validate(spec.config)
        self._stop = threading.Event()
        self._report = DriverReport(spec, logs=ray_logs(Path.cwd()))
        self._streams: dict[str, AnswerStream] = {}
        self._is_loading = False
        self._has_begun = False

    def run(self) -> int:
        """Return the driver's exit status."""
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        self._report.phases_so_far()
        import ray

        ray.init(log_to_driver=False, configure_logging=False)
        # Again: ray.init installs a handler that exits at once.
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        try:
            end = self._turn()
        except Exception as error:
            end = self._report.failed([failure_of(error, remedy=_ASK_AGAIN)])
        status = self._report.end(end)
        ray.shutdown()
        return status

    def _turn(self) -> EndEvent:
        self._report.phase("driver", "end")
        num_gpus = capacity_of(self._spec).total.get("GPU", 0)
        models = model_turns(self._spec, self._config, num_gpus=num_gpus)
        self._streams = {
            model.name: AnswerStream(model.name, self._report.emit) for model in models
        }
        engines = Engines(stopped=self._stop.is_set, warn=self._report.warn)
        groups = by_engine(models)
        self._phase_of_loading(engines, groups)
        if len(groups) == 1 or engines.fit([group[0].deployment for group in groups]):
            self._answer(engines, groups)
        else:
            self._report.warn(ONE_AFTER_THE_OTHER)
            self._answer_in_turn(engines, groups)
        return self._end()

    def _phase_of_loading(self, engines: Engines, groups: Sequence[Sequence[ModelTurn]]) -> None:
        """Say that a model is loaded: the first turn waits for it, later ones do not."""
        if all(engines.is_standing(group[0].deployment) for group in groups):
            return
        self._is_loading = True
        self._report.phase("engine", "begin", detail=groups[0][0].engine_label)

    def _answer(self, engines: Engines, groups: Sequence[Sequence[ModelTurn]]) -> list[Any]:
        """Load the engines and read all answers; return the engines."""
        reader = AnswerReader(key=self._spec.run_id, stopped=self._stop.is_set, begun=self._begun)
        loaded = []
        for group in groups:
            try:
                engine = engines.load(group[0].deployment)
            except LLMOpsError as error:
                end_all([self._streams[model.name] for model in group], error)
                continue
            if engine is None:
                break
            for model in group:
                reader.start(self._streams[model.name], engine, model.job, model.prompt)
            loaded.append(engine)
        if self._is_loading:
            self._is_loading = False
            self._report.phase("engine", "end")
        if not self._has_begun:
            self._report.phase("answer", "begin")
        while reader.poll():
            pass
        return loaded

    def _answer_in_turn(self, engines: Engines, groups: Sequence[Sequence[ModelTurn]]) -> None:
        """Begin with an engine that is loaded; each leaves before the next one is loaded."""
        ordered = sorted(groups, key=lambda group: not engines.is_standing(group[0].deployment))
        for number, group in enumerate(ordered, start=1):
            loaded = self._answer(engines, [group])
            if self._stop.is_set():
                return
            if number < len(ordered):
                for engine in loaded:
                    engines.leave(engine)

    def _begun(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._report.phase("answer", "end")

    def _end(self) -> EndEvent:
        streams = list(self._streams.values())
        end_all(streams, cancelled=True)  # Those that a stop has left without an engine.
        if any(stream.was_cancelled for stream in streams):
            return EndEvent(state="STOPPED", message="The answers were stopped.")
        errors = {stream.model: stream.error for stream in streams if stream.error}
        first = next(iter(errors.values()), None)
        if first is not None and len(errors) == len(streams):
            return self._report.failed([failure_of(first, remedy=_ASK_AGAIN)])
        message = "" if first is None else f"One model gave no answer: {first.message}"
        return EndEvent(state="SUCCEEDED", message=message)


def main() -> None:
    spec = RunSpec.of_this_job()
    print(f"run {spec.run_id}, attempt {spec.attempt}", flush=True)
    sys.exit(ChatDriver(spec).run())


if __name__ == "__main__":
    main()
