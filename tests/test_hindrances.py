"""What the machine itself did to a worker that SIGKILL ended."""

from __future__ import annotations

import pytest

from dtk.watch import hindrances
from dtk.watch.explain import exit_in_words

KILLED = "was killed by SIGKILL; the system has killed"


@pytest.mark.parametrize(
    ("code", "before", "now", "words"),
    [
        (-9, 3, 4, f"{KILLED} 1 process for want of memory meanwhile; if it was that one: smaller batches"),
        (-9, 0, 2, f"{KILLED} 2 processes for want of memory meanwhile; if it was one of them: smaller batches"),
        (-9, 3, 3, "was killed by SIGKILL; the kernel's log or the memory limit may say why"),
        (-9, None, None, "was killed by SIGKILL; the kernel's log or the memory limit may say why"),
        (-11, 3, 4, "crashed with SIGSEGV; the last Python lines before it are in its log"),
        (1, 3, 4, "ended itself with exit code 1 before its function returned (os._exit?)"),
    ],
)
def test_want_of_memory_is_named_only_where_the_system_counted_it(monkeypatch, code, before, now, words):
    monkeypatch.setattr(hindrances, "memory_kills", lambda: now)
    assert exit_in_words(code, why=hindrances.of_the_memory(code, before)).startswith(words)
