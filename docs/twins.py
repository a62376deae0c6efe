"""Each page as Markdown beside its HTML, and all of them for programs: llms.txt, llms-full.txt.

`sphinx-markdown-builder` writes the pages; what is here lists and joins them in the site's order
(https://llmstxt.org). A page of HTML names its twin in a `link` element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what is done with each page of HTML, and after all of Markdown."""
    # The mark of keyword-only parameters; sphinx-markdown-builder 0.6 does not know its node.
    app.add_node(nodes.abbreviation, override=True, markdown=(_as_text, _as_text))
    app.connect("html-page-context", _name_twin)
    app.connect("build-finished", _write_lists)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _as_text(translator: Any, node: nodes.Element) -> None:
    """Write the text of a node alone."""


def _name_twin(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    if doctree is not None:
        address = f"{page.rpartition('/')[2]}.md"
        link = f'<link rel="alternate" type="text/markdown" href="{address}">'
        context["metatags"] = context.get("metatags", "") + link


def _write_lists(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.name != "markdown":
        return
    root = app.config.root_doc
    folder = Path(app.outdir)
    texts = {}
    for page in _order(app, root):
        file = folder / f"{page}.md"
        images = "../" * page.count("/") + "_images/"
        text = re.sub(r"\]\((?:\.\./)+\.github/", f"]({images}", file.read_text(encoding="utf-8"))
        file.write_text(text, encoding="utf-8")
        texts[page] = text
    summary = _sentence(texts[root])
    lines = [f"# {app.config.project}", f"> {summary}", ""]
    for page, text in texts.items():
        if page != root:
            level = page.count("/") + (0 if page.endswith("/index") or "/" not in page else 1)
            title = app.env.titles[page].astext()
            if level < 2:
                lines += ["", f"## {title}", ""]
            lines.append(f"- [{title}]({page}.md): {_sentence(text)}")
    (folder / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    whole = (f"<!-- {page}.md -->\n\n{text.strip()}\n" for page, text in texts.items())
    (folder / "llms-full.txt").write_text("\n".join(whole), encoding="utf-8")


def _order(app: Sphinx, page: str) -> Iterator[str]:
    """Yield a page and those below it, as the site lists them."""
    yield page
    for below in app.env.toctree_includes.get(page, ()):
        yield from _order(app, below)


def _sentence(text: str) -> str:
    """Return the first sentence of a page that is not a heading, table, list, picture or code."""
    for paragraph in re.sub(r"```.*?```", "", text, flags=re.DOTALL).split("\n\n"):
        if re.match(r"[A-Z`*\[]", paragraph.strip()) and not paragraph.startswith(("* ", "- ")):
            line = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
            return re.split(r"(?<=\.) ", line)[0].rstrip(":")
    return ""
