"""The site is complete: each page is listed, each link leads somewhere, nothing is left out."""

from __future__ import annotations

import posixpath
import re

import pytest

from docs.generate import environment, repository, routes, server
from llmops_kernel.cli.app import EXAMPLES
from tests.docs.pages import DOCS, ROOT, generated, written

README = (ROOT / "README.md").read_text()
PAGES = {**written(), **{name: text for name, text in generated().items() if name[-3:] == ".md"}}
_TOCTREE = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)


def test_readme_fits_on_a_screen() -> None:
    assert len(README.splitlines()) <= 150
    assert len(README.split()) <= 900


def test_each_page_is_in_one_toctree() -> None:
    listed: list[str] = []
    for page, text in written().items():
        for block in _TOCTREE.findall(text):
            entries = [line for line in block.splitlines() if line and not line.startswith(":")]
            folder = posixpath.dirname(page)
            listed += [posixpath.normpath(posixpath.join(folder, entry)) for entry in entries]
    names = {name.rpartition(".")[0] for name in (*PAGES, *generated())}
    assert sorted(listed) == sorted(names - {"index"})


def test_each_notebook_is_a_tutorial_that_the_list_describes() -> None:
    notebooks = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert notebooks
    assert {name for name in generated() if name.endswith(".ipynb")} == {
        f"tutorials/{name}" for name in notebooks
    }
    table = PAGES["tutorials/index.md"].partition("```{toctree}")[0]
    assert set(re.findall(r"\]\(([\w-]+\.ipynb)\)", table)) == notebooks


def _dead_links(page: str, text: str) -> list[str]:
    folder = posixpath.join("docs", posixpath.dirname(page)) if page != "README.md" else ""
    plain = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    targets = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", plain)
    paths = [posixpath.normpath(posixpath.join(folder, target)) for target in targets]
    known = {f"docs/{name}" for name in generated()}
    return [path for path in paths if path not in known and not (ROOT / path).exists()]


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_each_link_leads_to_a_page_or_file(page: str) -> None:
    assert _dead_links(page, PAGES.get(page, README)) == []


def test_a_dead_link_would_be_noticed() -> None:
    assert _dead_links("howto/x.md", "[a](gone.md), [b](../../README.md), `[c](d)`") == [
        "docs/howto/gone.md"
    ]


def test_links_of_a_copied_file_lead_to_its_pages_and_files() -> None:
    text = "[a](CONTRIBUTING.md#folders) [b](Makefile) [c](https://example.com)"
    assert repository.relinked(text, source="SECURITY.md", page="why/threat-model.md") == (
        "[a](../contributing/guide.md#folders) [b](../../Makefile) [c](https://example.com)"
    )


def test_each_variable_of_the_environment_is_described() -> None:
    suffixes = {".py", ".sh", ".yaml", ".txt"}
    files = (p for p in (ROOT / "llmops_kernel").rglob("*") if p.suffix in suffixes)
    used = {
        name
        for path in files
        if "labextension" not in path.parts
        for name in re.findall(r"\bLLMOPS_[A-Z0-9_]*[A-Z0-9]", path.read_text(encoding="utf-8"))
    }
    assert used == {*environment.YOURS, *environment.OURS}
    tests = [*(ROOT / "tests").rglob("*.py"), ROOT / ".ci" / "test"]
    text = "".join(path.read_text(encoding="utf-8") for path in tests)
    assert [name for name in environment.TESTS if name not in text] == []


def test_each_route_has_a_sentence() -> None:
    assert {f"{method} {path}" for method, path, _ in server.routes()} == routes.ABOUT.keys()


def test_each_command_and_its_example_are_in_the_reference() -> None:
    page = PAGES["reference/commands.md"]
    assert [name for name in EXAMPLES if EXAMPLES[name] and f"### `llmops {name}" not in page] == []


def test_each_field_of_a_config_is_in_the_reference() -> None:
    page = PAGES["reference/train-config.md"]
    for field in ("`name`", "`model.attention`", "`training.on_oom`", "`method.r`", "`hooks.file`"):
        assert f"| {field} |" in page


def test_the_map_names_what_is_there() -> None:
    tree = re.search(r"```text\n(.*?)```", PAGES["contributing/map.md"], flags=re.DOTALL)
    assert tree is not None
    names = re.findall(r"^([\w./-]+)  ", tree[1], flags=re.MULTILINE)
    assert len(names) > 7
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_generated_pages_are_ignored_by_git() -> None:
    ignored = (ROOT / ".gitignore").read_text()
    for name in generated():
        folder, file = posixpath.split(name)
        patterns = (f"/docs/{name}\n", f"/docs/{folder}/*{posixpath.splitext(file)[1]}\n")
        assert any(pattern in ignored for pattern in patterns), name
    assert (DOCS / "conf.py").exists()
