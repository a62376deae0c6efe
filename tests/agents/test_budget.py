"""Rules that a person sets, and a budget that holds under load, kills and restarts."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llmops_kernel.agents.answers import MOST_CHARACTERS, RunLine, Runs, cleaned
from llmops_kernel.agents.ledger import Ledger, used_by
from llmops_kernel.agents.rules import (
    AgentRules,
    Budget,
    Permission,
    current_rules,
    read_rules,
    set_flags,
)
from llmops_kernel.errors import AgentError, ConfigError, StoreError
from llmops_kernel.metrics.events import EndEvent, HoldEvent
from llmops_kernel.store.record import AgentMark
from llmops_kernel.store.store import RunStore
from tests.server.runs import make_run, worker

_RESERVE = """
import sys
from pathlib import Path
from llmops_kernel.agents.ledger import Ledger
from llmops_kernel.agents.rules import Budget
from llmops_kernel.errors import AgentError
from llmops_kernel.store.store import RunStore
ledger, count = Ledger(RunStore(Path(sys.argv[1]))), 0
for _ in range(5):
    try:
        ledger.reserve(Budget(runs=8, gpu_hours=2.0), agent="a", gpu_hours=0.1)
        count += 1
    except AgentError:
        pass
print(count, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def ledger(store: RunStore) -> Ledger:
    return Ledger(store)


def test_fifty_threads_and_two_processes_reserve_no_more_than_the_budget(
    store: RunStore, ledger: Ledger
) -> None:
    command = [sys.executable, "-c", _RESERVE, str(store.root)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    others = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload]

    def reserve(_: int) -> bool:
        try:
            ledger.reserve(Budget(runs=8, gpu_hours=2.0), agent="b", gpu_hours=0.1)
        except AgentError:
            return False
        return True

    with ThreadPoolExecutor(50) as pool:
        own = sum(pool.map(reserve, range(50)))
    reserved = own + sum(int(other.stdout.readline()) for other in others)
    assert reserved == 8
    assert Ledger(store).use().runs == 8
    for other in others:
        other.communicate("")
    # What processes reserved that have ended, without a run, is given back.
    assert ledger.use().runs == own


def test_gpu_hours_are_reserved_given_back_and_replaced_by_what_was_used(
    store: RunStore, ledger: Ledger
) -> None:
    budget = Budget(runs=3, gpu_hours=3.0, money=9.0)
    first = ledger.reserve(budget, agent="a", gpu_hours=2.0)
    with pytest.raises(AgentError, match="GPU-hours left"):
        ledger.reserve(budget, agent="a", gpu_hours=1.5)
    ledger.give_back(first.ticket)
    second = ledger.reserve(budget, agent="a")
    assert (second.gpu_hours, second.money) == (1.0, 3.0)
    mark = AgentMark(name="a", reason="to see", ticket=second.ticket)
    make_run(
        store, "toy-1", ended=None, agent=mark, config={}, kind="script",
        hardware={"num_gpus": 2}, provider="kuberay",
    )  # fmt: skip
    ledger.attach(second.ticket, "toy-1")
    writer = worker(store, "toy-1")
    writer.emit(HoldEvent(node="n", state="begin", node_hour=4.0, currency="EUR", time_s=1000.0))
    # It has held a node for years, up to the start that it reports now.
    assert [entry.run for entry in ledger.over()] == ["toy-1"]
    writer.emit(EndEvent(state="SUCCEEDED", time_s=1900.0))
    writer.close()
    assert ledger.over() == []
    used = used_by(store, "toy-1", 1)
    assert used.has_ended
    assert used.money == pytest.approx(1.0)
    assert ledger.use().money == pytest.approx(1.0)
    assert ledger.use().gpu_hours == pytest.approx(used.gpu_hours)
    ledger.begin_anew()
    assert ledger.use().runs == 0


def test_a_submission_that_was_killed_counts_if_its_run_is_there(
    store: RunStore, ledger: Ledger
) -> None:
    command = [sys.executable, "-c", _RESERVE, str(store.root)]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "5"
    ticket = _first_ticket(store)
    mark = AgentMark(name="a", reason="to see", ticket=ticket)
    make_run(store, "toy-1", steps=1, ended=None, agent=mark)
    use = ledger.use()
    assert (use.runs, use.live) == (1, 1)


def _first_ticket(store: RunStore) -> str:
    import json

    book = json.loads((store.root / "agents-ledger.json").read_text())
    return str(book["entries"][0]["ticket"])


def test_a_broken_ledger_allows_nothing(store: RunStore, ledger: Ledger) -> None:
    store.root.mkdir(parents=True)
    (store.root / "agents-ledger.json").write_text("{")
    with pytest.raises(StoreError):
        ledger.reserve(Budget(), agent="a")


def test_agents_only_read_unless_a_person_says_more(home: Path, tmp_path: Path) -> None:
    assert AgentRules().allow == ()
    permission: Permission = "submit"
    with pytest.raises(AgentError, match="submit"):
        AgentRules().require(permission)
    home.mkdir(parents=True)
    file = home / "agents.yaml"
    file.write_text("allow: [submit]\nbudgets: {runs: 3}\nclusters: local\n")
    with pytest.raises(ConfigError) as wrong:
        read_rules(file)
    assert {problem.path for problem in wrong.value.problems} == {"budgets", "clusters"}
    file.write_text(f"allow: [submit, stop]\nbudget: {{runs: 3}}\nworkspaces: [{tmp_path}]\n")
    set_flags({"allow": ["stop", "clusters"], "budget.runs": 20, "budget.gpu_hours": 0.5})
    try:
        rules = current_rules()
    finally:
        set_flags({})
    # Flags narrow what the file allows.
    assert rules.allow == ("stop",)
    assert (rules.budget.runs, rules.budget.gpu_hours) == (3, 0.5)
    assert rules.folder("x.train.yaml") == tmp_path / "x.train.yaml"
    (tmp_path / "link").symlink_to("/etc")
    for path in ("../x", "/etc/x", "link/x"):
        with pytest.raises(AgentError):
            rules.folder(path)
    with pytest.raises(AgentError):
        rules.require_priority("high")


def test_a_text_loses_what_acts_and_what_hides() -> None:
    assert cleaned("a\x1b[31mred\x1b[0m\r\nb\tc\x07") == "ared\nb\tc"
    assert cleaned("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\") == "link"
    assert cleaned("a\u200bb\u202ec\U000e0041d\ud800") == "abcd\N{REPLACEMENT CHARACTER}"
    assert cleaned("می\u200cخواهم") == "می\u200cخواهم"
    assert cleaned("x" * 3000).endswith("(1,000 characters left out)")


def test_an_answer_fits_and_says_what_it_lacks() -> None:
    line = {"kind": "train", "state": "RUNNING", "cluster": "local", "created_s": 1.0}
    many = Runs(runs=tuple(RunLine(run=f"r-{n}", name="x" * 1000, **line) for n in range(100)))
    fitted = many.fitted()
    assert len(fitted.model_dump_json()) <= MOST_CHARACTERS
    assert len(fitted.runs) + fitted.left_out == 100
    assert {"runs[].name", "runs[].title", "runs[].tags[]"} <= set(fitted.untrusted)
    assert "runs[].run" not in fitted.untrusted
