"""GitHub and pre-commit run what `make check` and `make test` run, with the least rights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from llmops_kernel.version import VERSION

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def jobs(workflow: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load(workflow.read_text())["jobs"].values())


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(workflow) for step in job["steps"]]


def test_there_are_workflows() -> None:
    assert WORKFLOWS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_and_knows_no_secret(workflow: Path) -> None:
    text = workflow.read_text()
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in jobs(workflow))
    assert "secrets." not in text
    assert all(job["timeout-minutes"] <= 90 for job in jobs(workflow))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_githubs_own_of_a_pinned_major_version(workflow: Path) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"actions/[\w-]+@v\d+", name)] == []


def test_the_checks_run_with_each_supported_python() -> None:
    (job,) = jobs(GITHUB / "workflows" / "checks.yml")
    required = re.search(r'requires-python = "(.*)"', (ROOT / "pyproject.toml").read_text())
    assert required is not None
    supported = [f"3.{n}" for n in range(30) if SpecifierSet(required[1]).contains(f"3.{n}")]
    assert job["strategy"]["matrix"]["python"] == supported


def test_what_a_workflow_makes_is_a_target() -> None:
    commands = " ".join(step.get("run", "") for path in WORKFLOWS for step in steps(path))
    targets = re.findall(r"\bmake ([\w-]+)", commands)
    assert {"check", "test"} <= set(targets)
    assert [target for target in targets if f"\n{target}: " not in MAKEFILE] == []


def test_a_release_has_the_version_of_its_tag_and_a_date_in_the_changelog() -> None:
    commands = " ".join(step.get("run", "") for step in steps(GITHUB / "workflows" / "release.yml"))
    assert 'test "v$version" = "$GITHUB_REF_NAME"' in commands
    assert re.search(rf"^## \[{VERSION}\] - \d{{4}}-\d\d-\d\d$", CHANGELOG, re.MULTILINE)


def test_hooks_run_what_make_check_runs() -> None:
    check = MAKEFILE.partition("\ncheck: ")[2].partition("\n\n")[0].replace("$(BIN)", ".venv/bin")
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = {hook["entry"] for hook in repository["hooks"]}
    for entry in entries:
        command = re.match(r"\.venv/bin/(python -m )?[\w.-]+", entry)
        assert command is not None
        assert command[0] in check
    of_check = set(re.findall(r"python -m (tests\.checks\.\w+)", check))
    assert of_check == {entry.split()[-1] for entry in entries if "tests.checks" in entry}


@pytest.mark.parametrize("form", ["bug", "feature"])
def test_issue_forms_have_a_name_and_ask_something(form: str) -> None:
    content = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / f"{form}.yml").read_text())
    assert content["name"]
    ids = [item["id"] for item in content["body"]]
    assert len(ids) == len(set(ids))
    assert any(item.get("validations", {}).get("required") for item in content["body"])
