"""The small process that stands between a kernel and the parent of its workers, and sees to it that nothing is left.

It takes part in no run. It waits until the kernel is gone, however it went, or until the parent is; then it kills
what is below it. Orphans are below it too: a worker's own child process that went into another session and whose
worker is dead comes to the nearest ancestor that adopts (`PR_SET_CHILD_SUBREAPER`), and not to the system's process 1.
It has no thread and imports no TensorFlow, so that it hears of a death also while the parent is busy importing,
and so that the parent may ask the system to be killed with it: that goes by the thread, not by the process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from pathlib import Path

from dtk.errors import page
from dtk.language import N_, _
from dtk.launch.messages import Ready, as_line
from dtk.worker.process import adopt_orphans, die_with, end_children, isolate

__all__ = ["main"]


def main() -> None:
    """The program: `python -c ... SYS_PATH OPTIONS`; see `warm.py`. The parent is forked from here."""
    options = json.loads(sys.argv[2])
    kernel = os.getppid()
    if options["isolated"]:
        try:
            isolate()
        except OSError as error:
            words = N_("DTK_ISOLATE: a network of its own is refused here ({why}); unset it, or see {page}")
            words = _(words, why=error.strerror, page=page("guide/shared_machines.md"))
            os.write(1, as_line(Ready(words)))
            return
    adopt_orphans()
    # Before the fork, or no one would end the parent at a signal in between.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_given: sys.exit(0))
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        die_with(guard)
        from dtk.launch import parent

        parent.main(options)
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)  # the events' pipe: the kernel sees its end when the parent ends
    try:
        status = _watch(kernel, child)
    except SystemExit:
        status = 0  # asked to end: as if the kernel had gone
    end_children(set())
    if os.getppid() != kernel:
        Path(options["log"]).unlink(missing_ok=True)  # no kernel is left that could point to it
    code = os.waitstatus_to_exitcode(status)
    os._exit(128 - code if code < 0 else code)


def _watch(kernel: int, child: int) -> int:
    """Returns when the kernel is gone, when it has closed its end of the pipe, or when the parent has ended.

    The last gives the parent's status as `os.waitpid` has it; the others 0.
    """
    poll = select.poll()
    poll.register(0, 0)  # only whether the other end is closed; what comes through is for the parent
    while True:
        # A process that the kernel forked may hold the pipe open after the kernel's death: ask by pid as well.
        if poll.poll(100) or os.getppid() != kernel:
            return 0
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        _reap_orphans(child)


def _reap_orphans(child: int) -> None:
    """Takes the exit codes of adopted processes, so that they are no zombies; the parent's own is left."""
    if sys.platform != "linux":
        return
    try:
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        while info is not None and info.si_pid != child:
            os.waitpid(info.si_pid, os.WNOHANG)
            info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        pass
