#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox[uv]>=2025.10.14"]
# ///
"""The lanes: dtk's tests with other versions of Python, TensorFlow and Keras. Which, and why: docs/guide/versions.md.

`uv run noxfile.py -s colab` (or lowest, tf215, canary) makes an environment in .nox/colab and runs all tests in it;
`uv run noxfile.py -s tf215 -- tests/test_states.py` some. uv comes by `pip install uv`.
"""

from __future__ import annotations

import os
from pathlib import Path

import nox

nox.needs_version = ">=2025.10.14"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
# Libraries of several years beside each other: an older one calls a newer one by names that this deprecates (matplotlib
# pyparsing's, anyio pytest's).
OF_SEVERAL_YEARS = ("-p", "no:anyio", "-W", "ignore::DeprecationWarning")


@nox.session(python="3.13")
def colab(session: nox.Session) -> None:
    """Colab's versions, without JupyterLab, which Colab has not."""
    session.install("-c", "constraints/colab.txt", "-e", ".[test,estimator,tensorboard]")
    _test(session, *OF_SEVERAL_YEARS)


@nox.session(python="3.13")
def lowest(session: nox.Session) -> None:
    """What users install, each at its floor; then the tools, which leave it as it is."""
    # TensorFlow 2.20 can't write a graph with protobuf 7, and does not say so to pip.
    known = _written(session, "known.txt", "protobuf<7\n")
    session.install("--resolution", "lowest-direct", "-c", known, "-e", ".[lab]")
    floors = session.run_install("uv", "pip", "freeze", "--quiet", "--exclude-editable", silent=True, external=True)
    session.install("-c", _written(session, "floors.txt", floors), "-e", ".[test,lab]")
    _test(session, *OF_SEVERAL_YEARS)


@nox.session(python="3.11")
def tf215(session: nox.Session) -> None:
    """TensorFlow 2.15 with its own Keras 2 and Estimator; it has wheels up to Python 3.11."""
    session.install("-c", "constraints/tf215.txt", "-e", ".[test,lab]")
    _test(session)


@nox.session(python="3.14", default=False)
def canary(session: nox.Session) -> None:
    """The newest TensorFlow and Keras, candidates too. It may fail: its last lines are what would break with these."""
    # tf_keras comes after TensorFlow and asks for its own: it is taken as it is. A candidate of TensorFlow asks for
    # keras-nightly, whose files are keras's, too: left out.
    tensorflow = "tensorflow>=2.21.dev0"
    newest = _written(session, "newest.txt", f"{tensorflow}\nkeras-nightly; sys_platform == 'none'\n")
    session.install("--upgrade", "--override", newest, "-e", ".[test,lab]", tensorflow, "keras>=3.15.dev0")
    _pytest(session, "", "-n", "3", "--dist", "loadfile", "-rfE", "tests", "dtk")


def _test(session: nox.Session, *options: str) -> None:
    """The tests, then the lessons, whose stored outputs are the main lane's and are not compared."""
    if session.posargs:
        return _pytest(session, "", *options, *session.posargs)
    _pytest(session, "", "-n", "3", "--dist", "loadfile", *options, "tests", "dtk")
    _pytest(session, "-lessons", *options, "tests/test_lane_lessons.py")


def _pytest(session: nox.Session, part: str, *options: str) -> None:
    """Leaves its report for tools/lanes_table.py."""
    name, suite = (session.run("python", "tests/lanes.py", *its, silent=True).strip() for its in (("--name",), ()))
    report = f"--junit-xml=out/lanes/{name}{part}.xml"
    session.run("python", "-m", "pytest", report, "-o", f"junit_suite_name={suite}", *options)


def _written(session: nox.Session, name: str, text: str) -> str:
    path = Path(session.virtualenv.location, name)
    path.write_text(text)
    return os.fspath(path)


if __name__ == "__main__":
    nox.main()
