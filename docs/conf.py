"""Sphinx's settings. `make docs` builds the site; warnings are errors there."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs import generate
from llmops_kernel.version import VERSION

generate.write()

project = "llmops-kernel"
author = "the maintainers of llmops-kernel"
version = release = VERSION
html_title = f"llmops-kernel {VERSION}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_markdown_builder",
    "docs.twins",
]
exclude_patterns = ["_build", "generate", "**/.ipynb_checkpoints"]
templates_path: list[str] = []

myst_heading_anchors = 3
# Code shows its text alone; the pages are read as Markdown as well.
myst_enable_extensions: list[str] = []
nb_merge_streams = True
nb_mime_priority_overrides = [("markdown", "text/plain", 0)]  # Else it knows no table of ours.
nb_execution_mode = "off"  # With DOCS_EXECUTE the Makefile has run them.

# Docstrings are plain sentences with names in single backticks.
default_role = "code"
smartquotes = False  # `--workers` keeps its dashes
add_module_names = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"show-inheritance": False}
# What other packages document cannot be linked without the internet.
suppress_warnings = [
    "misc.highlighting_failure",  # A cell with a magic is no Python.
    "mystnb.unknown_mime_type",  # The live panel of an executed notebook: its picture is shown.
]
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r".*")]

html_theme = "sphinx_book_theme"
html_theme_options = {
    "show_toc_level": 2,
    "home_page_in_toc": True,
    "navigation_with_keys": False,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "navbar_persistent": [],  # the side bar has the search
}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
copybutton_exclude = ".linenos, .gp, .go"

markdown_uri_doc_suffix = ".md"
linkcheck_timeout = 20
linkcheck_workers = 4
linkcheck_ignore = [r"http://localhost.*", r"https?://[\w.-]*example\.(com|net).*"]
