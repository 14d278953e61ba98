"""Where dtk is published: an address that a sentence may point at, which has to hold without a clone."""

from __future__ import annotations

import re
import sys

__all__ = ["DISTRIBUTION", "REPOSITORY", "page", "with_addresses"]

# As pyproject.toml has them; tests/test_project.py compares.
DISTRIBUTION, REPOSITORY = "dtk-toolkit", "https://github.com/dtk-toolkit/dtk"


def page(place: str) -> str:
    """The address of a file of this version's documentation.

    >>> page("guide/clusters.md").partition("/docs/")[2]
    'guide/clusters.md'
    """
    return f"{REPOSITORY}/blob/v{sys.modules[__package__].__version__}/docs/{place}"


def with_addresses(text: str) -> str:
    """Replace links to files of `docs/`, which hold in a clone, by their addresses.

    >>> "/docs/guide/clusters.md" in with_addresses("[clusters](../docs/guide/clusters.md)")
    True
    """
    return re.sub(r"\]\((?:\.\./)+docs/", f"]({page('')}", text)
