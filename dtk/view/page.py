"""One HTML file without anything beside it: tables, figures and text, light and dark."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure

from dtk.language import _, language
from dtk.view.canvas import image

__all__ = ["figure", "page", "table", "text"]

_PAGE = """<!doctype html>
<html lang="{language}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root {{color-scheme: light dark}}
body {{font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem}}
table {{border-collapse: collapse; width: 100%}}
th, td {{text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid #8886}}
figure {{margin: 1.5rem 0; overflow-x: auto}}
img {{max-width: 100%; min-width: 30rem; background: #fff}}
pre {{overflow-x: auto; padding: .8rem; border: 1px solid #8886; font-size: .8rem}}
</style></head><body>
<h1>{title}</h1><p>{ended}</p>
{parts}</body></html>
"""


def page(title: str, summary: str, parts: Iterable[str]) -> str:
    """Return the whole file; parts are made by the functions below, summary is a sentence without its full stop."""
    when = time.strftime("%Y-%m-%d %H:%M")
    ended = _("{summary}. {when}.", summary=html.escape(summary), when=when)
    return _PAGE.format(language=language(), title=html.escape(title), ended=ended, parts="".join(parts))


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table under its title; "" where it has no rows."""
    if not rows:
        return ""
    cells = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>\n" for row in rows
    )
    names = "".join(f"<th>{html.escape(head)}</th>" for head in heads)
    return f"<h2>{html.escape(title)}</h2>\n<table><tr>{names}</tr>\n{cells}</table>\n"


def figure(drawn: Figure, words: str) -> str:
    """Return a figure as a picture; words: what it says, for those who see none."""
    return f"<figure>{image(drawn, words)}</figure>\n"


def text(title: str, lines: Sequence[str]) -> str:
    """Return lines as they are, under their title; "" where there are none."""
    return f"<h2>{html.escape(title)}</h2>\n<pre>{html.escape(chr(10).join(lines))}</pre>\n" if lines else ""
