"""Where dtk is published, and what only some calls need: addresses and commands that messages point at.

Addresses have to hold without a clone.
"""

from __future__ import annotations

import importlib.util
import sys

from dtk.errors import ClusterConfigError
from dtk.language import _

__all__ = ["DISTRIBUTION", "REPOSITORY", "command", "need", "page"]

# As pyproject.toml has them; tests/test_project.py compares.
DISTRIBUTION, REPOSITORY = "dtk-toolkit", "https://github.com/dtk-toolkit/dtk"
_MODULES = {  # optional dependencies -> the modules that code imports of them
    "estimator": ("tensorflow_estimator", "tf_keras"),
    "keras2": ("tf_keras",),
    "lab": ("jupyterlab",),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
}


def command(*extras: str) -> str:
    """What installs them.

    >>> command("keras2", "tensorboard")
    'pip install "dtk-toolkit[keras2,tensorboard]"'
    """
    assert set(extras) <= set(_MODULES)
    return f'pip install "{DISTRIBUTION}[{",".join(extras)}]"'


def need(extra: str, who: str) -> None:
    """who: what the user asked for, such as "keras=2". Raises ClusterConfigError where a module is not installed."""
    missing = [name for name in _MODULES[extra] if importlib.util.find_spec(name) is None]
    if missing:
        words = _("{who} needs {modules}, not installed here", who=who, modules=", ".join(missing))
        raise ClusterConfigError(words, remedy=command(extra))


def page(place: str) -> str:
    """The address of a file of this version's documentation.

    >>> page("guide/clusters.md").partition("/docs/")[2]
    'guide/clusters.md'
    """
    return f"{REPOSITORY}/blob/v{sys.modules[__package__].__version__}/docs/{place}"
