"""This user's directory for what dtk writes while it runs; nothing there is anybody else's, or follows a link."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path

from dtk.errors import DtkError

__all__ = ["scratch"]


def scratch(*parts: str) -> Path:
    """This user's directory for runs and logs, mode 0700, under the system's temporary directory; or one inside it.

    Raises:
        DtkError: it can't be made, or is not this user's alone: a link, another user's, or open to others' writing.
    """
    # A worker has a TMPDIR of its own, but shares its kernel's scratch.
    try:
        path = Path(os.environ.get("DTK_SCRATCH") or Path(tempfile.gettempdir()) / f"dtk-{os.getuid()}")
        _own(path)
        for part in parts:
            path = path / part
            _own(path)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # it could be written; `dtk.watch.hindrances` has the words
        where = f"{error.filename} can't" if error.filename else "no directory for temporary files can"
        raise DtkError(f"{where} be written ({error.strerror}); set TMPDIR to a directory of your own") from error
    return path


def _own(path: Path) -> None:
    """Makes the directory where there is none. What is looked at is what was opened: a name can change its meaning."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            found = "a symbolic link" if path.is_symlink() else "no directory"
            raise DtkError(f"{path} is {found}; remove it, or set TMPDIR to a directory of your own") from None
        raise
    try:
        state = os.fstat(descriptor)
        if state.st_uid != os.getuid():
            raise DtkError(f"{path} belongs to another user; set TMPDIR to a directory of your own")
        if state.st_mode & 0o022:
            mode = stat.filemode(state.st_mode)
            words = f"others may write into {path} ({mode}); remove it, or set TMPDIR to a directory of your own"
            raise DtkError(words)
        if state.st_mode & 0o077:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
