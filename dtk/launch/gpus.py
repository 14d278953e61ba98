"""Which of this machine's GPUs each worker sees: by CUDA_VISIBLE_DEVICES, so that none takes another's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from dtk.language import _

__all__ = ["divided", "environment", "visible"]

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_NONE = "-1"


def visible() -> tuple[list[str], str]:
    """The GPUs that this user may see, as CUDA names them, and what says so."""
    given = os.environ.get(_VARIABLE)
    if given is not None:
        named = [each.strip() for each in given.split(",")]
        valid = named.index(_NONE) if _NONE in named else len(named)  # CUDA looks at none behind an invalid one
        return [each for each in named[:valid] if each], f"{_VARIABLE}={given}"
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return [], _("nvidia-smi, which lists none or is not there")
    count = sum(line.startswith("GPU ") for line in listed.splitlines())  # parts of one (MIG) are indented
    return [str(number) for number in range(count)], "nvidia-smi"


def divided(gpus: Sequence[str], workers: int, each: int) -> list[str]:
    """What each worker sees: worker k the GPUs k * each to k * each + each - 1.

    >>> divided(["0", "1", "2", "3", "4"], workers=2, each=2)
    ['0,1', '2,3']
    """
    return [",".join(gpus[worker * each : (worker + 1) * each]) for worker in range(workers)]


def environment(shares: Sequence[str], member: int) -> dict[str, str]:
    """What shows a member its share; an evaluator, whose number follows the workers', sees no GPU."""
    return {_VARIABLE: shares[member] if member < len(shares) else _NONE} if shares else {}
