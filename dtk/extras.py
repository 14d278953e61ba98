"""What only some calls need, the optional dependencies in pyproject.toml, and the sentence where it is not there."""

from __future__ import annotations

import importlib.util

from dtk.errors import ClusterConfigError
from dtk.language import _
from dtk.published import DISTRIBUTION

__all__ = ["command", "need"]

# Optional dependencies -> the modules that code imports of them.
_MODULES = {
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
