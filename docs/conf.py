"""How Sphinx builds the site, a language at a time: docs/build.py calls it, with the language as a tag."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]

from building.links import SCHEME  # noqa: E402
from building.places import ENGLISH, trees  # noqa: E402
from heads import repository  # noqa: E402

_TREE = next((language for language in trees() if language in tags), ENGLISH)  # noqa: F821  `tags` is Sphinx's

project = "dtk"
language = {"zh": "zh_CN"}.get(_TREE, _TREE)
dtk_tree = _TREE

extensions = ["myst_nb", "sphinx_copybutton", "building.extension"]
nb_execution_mode = "off"
nb_render_error_lexer = "text"  # Python's tracebacks are a part of what dtk raises, or none
nitpicky = True
highlight_language = "none"  # what is not said to be Python is a shell's or a program's output
myst_heading_anchors = 4
myst_url_schemes = {
    "http": None,
    "https": None,
    "mailto": None,
    SCHEME: {"url": "{{path}}"},
    f"{SCHEME}-part": {"url": "{{path}}#{{fragment}}"},
}

copybutton_selector = ":not(.output) > div.highlight pre"
linkcheck_anchors = False  # pages that programs draw have none until then
linkcheck_timeout = 20
linkcheck_retries = 2

html_theme = "pydata_sphinx_theme"
html_title = "dtk"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["dtk.css", "labs/labs.css"]
html_js_files = [("labs/labs.js", {"type": "module"})]  # does nothing where a page has no lab
templates_path = ["_templates"]
html_copy_source = False
html_sidebars = {"in_the_page": []}  # it has no pages below it
html_use_index = False  # there is nothing in it: the reference is written by tools/reference.py
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "dtk"},
    "icon_links": [{"name": "GitHub", "url": repository(), "icon": "fa-brands fa-github"}],
    "navbar_end": ["language", "theme-switcher", "navbar-icon-links"],
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["dark-figure"],
    "show_prev_next": True,
    "search_bar_text": {"zh": "搜索"}.get(_TREE, "Search"),
}
copyright = "dtk's authors, Apache-2.0"
