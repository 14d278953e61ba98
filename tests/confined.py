"""A Python program in a mount or network namespace of its own, where a test may rearrange the machine."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAD = f"import sys\nsys.path[:0] = {[str(ROOT), str(ROOT / 'tests')]!r}\nimport dtk, hostile\n"
# Said in one line, as a learner sees it: a DtkError, or what else came.
TAIL = "\n".join(
    ["try:", "    print('RESULT', {call})", "except dtk.DtkError as error:", "    print('SAID', error)", ""]
)


@functools.cache
def command(kind):
    """What begins a command in a namespace of that kind ("--mount", "--net"); () where that is not allowed here."""
    for way in (["unshare", kind], ["unshare", "--map-root-user", kind]):
        if shutil.which("unshare") and not subprocess.run([*way, "true"], capture_output=True).returncode:
            return tuple(way)
    return ()


def confined(call, tmp_path, before="true", kind="--mount", limit="", **variables):
    """What `call` (Python) came to, after the shell's `before`: "RESULT ..." or "SAID <a DtkError's sentence>"."""
    way = command(kind)
    if not way:
        pytest.skip(f"no namespace of one's own is allowed here (unshare {kind})")
    return plain(call, tmp_path, [*way, "sh", "-ec", f'{before}\n{limit}\nexec "$@"', "sh"], **variables)


def plain(call, tmp_path, way=(), **variables):
    """The same without a namespace; variables: of the environment, None for one that shall not be set."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "DTK_LIVE": "off", **variables}
    env = {name: value for name, value in env.items() if value is not None}
    line = [*way, sys.executable, "-c", HEAD + TAIL.format(call=call)]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=280)
    said = [line for line in done.stdout.splitlines() if line.startswith(("RESULT", "SAID"))]
    assert len(said) == 1, f"{done.stdout}\n{done.stderr}"
    return said[0]
