"""JupyterLab as `make lab` starts it, on a copy of the lessons and with nothing of the user's own settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import psutil
import pytest
from waiting import wait_for, workers_of

ROOT = Path(__file__).parent.parent.parent
EXTENSIONS = "@jupyterlab/apputils-extension"
# Nothing that reaches for the network, and no question about it over the page.
QUIET = {"fetchNews": "false", "checkForUpdates": False}
# No token, a port that is free (JupyterLab goes on to the next ones), no browser of the user's.
OPTIONS = (
    "--no-browser",
    "--port=18900",
    "--port-retries=200",
    "--IdentityProvider.token=",
    "--ServerApp.disable_check_xsrf=True",
    "--expose-app-in-browser",
)


@dataclass(frozen=True)
class Server:
    """A running JupyterLab. url: of its base, with a slash at its end. notebooks: the folder it shows.

    app: "lab", or "notebook" for Notebook 7.
    """

    process: subprocess.Popen[bytes]
    url: str
    notebooks: Path
    settings: Path
    app: str = "lab"

    def address(self, lesson: str) -> str:
        """Where it shows the lesson; in a workspace of its own, else JupyterLab brings back another page's."""
        there = f"lab/workspaces/{lesson.replace('/', '-')}/tree/{lesson}.ipynb?reset"
        return f"{self.url}{there if self.app == 'lab' else f'notebooks/{lesson}.ipynb'}"

    def theme(self, name: str) -> None:
        """The theme of pages that are opened from now on: "Light" or "Dark"."""
        _write_setting(self.settings, "themes", {"theme": f"JupyterLab {name}"})

    def fresh(self, lesson: str) -> None:
        """Ends all kernels, and sets the lesson back to what the project has."""
        for session in json.load(urlopen(f"{self.url}api/sessions", timeout=30)):
            urlopen(Request(f"{self.url}api/sessions/{session['id']}", method="DELETE"), timeout=60).close()
        ours, there = ROOT / "notebooks" / lesson, self.notebooks / lesson
        if ours.read_bytes() != there.read_bytes():
            shutil.copyfile(ours, there)

    @property
    def kernels(self) -> list[int]:
        """Process numbers of the kernels that it has started."""
        children = psutil.Process(self.process.pid).children()
        return [child.pid for child in children if "ipykernel_launcher" in " ".join(child.cmdline())]

    @property
    def workers(self) -> list[int]:
        """Process numbers of the workers that train for one of its kernels now."""
        return [pid for kernel in self.kernels for pid in workers_of(kernel)]


def command(app: str) -> list[str]:
    """What `make lab` runs, on the folder `notebooks`; app: "lab", or the module that is to run instead of it."""
    recipe = re.search(r"^lab:.*\n\t(.+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert recipe, "the Makefile has no target `lab`"
    here = str(Path(sys.executable).parent)
    line = recipe[1].replace("$(BIN)", here).replace("$(LAB_OPTIONS)", "").replace("my_lessons", "notebooks")
    # JupyterLab refuses to run for the superuser of a container unless told to.
    words = line.split() if app == "lab" else [sys.executable, "-m", app, "--notebook-dir=notebooks"]
    return [*words, *OPTIONS, *(["--allow-root"] if os.geteuid() == 0 else [])]


@contextmanager
def serve(
    place: Path, options: Sequence[str] = (), read_only: bool = False, widgets: bool = True, app: str = "lab"
) -> Iterator[Server]:
    """Starts it below `place`, waits until it answers, and ends it with all its kernels.

    read_only: nothing in the notebooks' folder can be written. widgets: whether this JupyterLab can show widgets.
    app: "notebook" starts Notebook 7 instead.
    """
    notebooks, settings = place / "notebooks", place / "settings"
    shutil.copytree(ROOT / "notebooks", notebooks, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    _write_setting(settings, "notification", QUIET)
    if not widgets:
        (place / "config" / "labconfig").mkdir(parents=True)
        off = {"disabledExtensions": {"@jupyter-widgets/jupyterlab-manager": True}}
        (place / "config" / "labconfig" / "page_config.json").write_text(json.dumps(off))
    env = _environment(place, settings)
    words = [*(_lock(notebooks) if read_only else []), *command(app), *options]
    with (place / "server.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=place, env=env, stdout=log, stderr=log)
    try:
        yield Server(process, _url(process, place), notebooks, settings, app)
    finally:
        process.terminate()  # which ends its kernels as well
        process.wait(60)
        notebooks.chmod(0o755)


def _lock(notebooks: Path) -> list[str]:
    """Takes from the folder the right to write; returns the words before a command that has no other rights."""
    for path in (*notebooks.iterdir(), notebooks):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() != 0:
        return []
    if not shutil.which("setpriv"):
        pytest.skip("the superuser writes everywhere, and there is no setpriv to take that from a process")
    return ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]


def _environment(place: Path, settings: Path) -> dict[str, str]:
    ours = {
        "DTK_SCRATCH": os.environ["DTK_SCRATCH"],
        "HOME": str(place),
        "IPYTHONDIR": str(place / "ipython"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(place / "workspaces"),
        "PYTHONPATH": str(ROOT),
        **{f"JUPYTER_{name}_DIR": str(place / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")},
    }
    # In CI runs show nothing while they go; here somebody looks.
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "DTK_LIVE", "JUPYTER_PATH")}
    return {**kept, **ours}


def _write_setting(settings: Path, plugin: str, values: dict[str, object]) -> None:
    path = settings / EXTENSIONS / f"{plugin}.jupyterlab-settings"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


def _url(process: subprocess.Popen[bytes], place: Path) -> str:
    """Where the server listens, as its runtime file says; fails with its log where it has ended."""
    runtime = place / "runtime" / f"jpserver-{process.pid}.json"

    def answers() -> bool:
        assert process.poll() is None, (place / "server.log").read_text()
        try:
            url = json.loads(runtime.read_text())["url"]
            return bool(urlopen(f"{url}api/status", timeout=10).status == 200)
        except (OSError, ValueError, KeyError):
            return False  # not yet

    wait_for(answers)
    return str(json.loads(runtime.read_text())["url"])
