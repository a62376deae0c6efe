"""`%%train`: submits a run from a cell and shows its live panel."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from llmops_kernel.config.problems import config_error
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.magics.cell import wanted, with_variables
from llmops_kernel.magics.failure import MagicError
from llmops_kernel.magics.train_options import parse

if TYPE_CHECKING:
    from llmops_kernel.api import Run
    from llmops_kernel.services.submission import Submission


def train(shell: Any, line: str, body: str) -> None:
    """Submit what a cell describes; the run is in a variable of the notebook afterwards.

    Raises MagicError.
    """
    options = parse(line)
    if options is None:
        return
    try:
        text = with_variables(body, shell.user_ns)
        submission = wanted(options.words, text).submission(options.workspace)
        if options.dry_run:
            print(_checked(submission))
            return
        run = _submitted(submission, options.cluster)
        shell.user_ns[options.variable] = run
        _watch(run, options)
    except LLMOpsError as error:
        raise MagicError.of(error) from None


def _submitted(submission: Submission, cluster: str) -> Run:
    from llmops_kernel import api
    from llmops_kernel.api.environment import default_progress
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.submission import submit

    target = api.cluster(cluster)
    record = submit(target.access, submission, store=current().store, progress=default_progress())
    return api.attach(record.run_id)


def _watch(run: Run, options: argparse.Namespace) -> None:
    print(f"{options.variable} = run {run.id} on cluster {options.cluster}")
    if options.wait:
        run.wait()
    else:
        run.show()


def _checked(submission: Submission) -> str:
    """Return what a valid config does. Raises ConfigError for files that are missing."""
    from llmops_kernel.kinds.reading import from_record
    from llmops_kernel.kinds.registry import file_kind, kind_named

    request = submission.request
    if problems := request.check(submission.workspace):
        raise config_error(problems)
    kind = kind_named(request.kind)
    return "\n".join(file_kind(kind).effect(from_record(kind, request.config)))
