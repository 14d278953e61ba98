"""Exercises of lesson 06: TF_CONFIG, environment and place of a worker; what two of them trained."""

from __future__ import annotations

import contextlib
import json
import random
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from dtk.course.exercise import Exercise, NotSolved, Trial, tf_config
from dtk.course.exercises.lesson_04 import CONFIG
from dtk.language import N_, _

_CLOSE = 1e-5  # of weights after 28 steps; rounding alone makes 1e-7
_PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")

_CONFIG = replace(CONFIG, name="06.config", hint=N_("compare with run.tf_config of any run"))


def _environments(draw: random.Random) -> list[tuple[dict[str, str], dict[str, Any]]]:
    plain: dict[str, str] = {"PATH": "/bin", "HOME": "/home/me"}
    proxies = [dict.fromkeys(names, "http://proxy:8080") for names in ((), _PROXIES[:2], _PROXIES[2:], _PROXIES)]
    more: list[dict[str, str]] = [{}, {}, {"LANG": "C", "USER": "me"}, {"VIRTUAL_ENV": "/home/me/.venv"}]
    return [
        ({**plain, **own, **proxy}, tf_config(["10.0.0.4:2222", "10.0.0.5:2223"], draw.randrange(2)))
        for own, proxy in zip(more, proxies, strict=True)
    ]


def _with_plain_json(answer: Callable[..., Any], base: dict[str, str], config: Any) -> Any:
    """What an answer makes, its TF_CONFIG with json.dumps's own spaces and order: others are as good. Where `base`
    itself changed, which may be the notebook's own environment, what is made says so.
    """
    before = dict(base)
    made = answer(base, config)
    if base != before and isinstance(made, Mapping):
        made = {**made, "base": "changed"}
    if isinstance(made, Mapping) and isinstance(made.get("TF_CONFIG"), str):
        with contextlib.suppress(ValueError):
            return {**made, "TF_CONFIG": json.dumps(json.loads(made["TF_CONFIG"]), sort_keys=True)}
    return made


def _in_place(base: dict[str, str], config: Any) -> dict[str, str]:
    kept = _environment(base, config)
    base.clear()
    base.update(kept)
    return base


def _environment(base: Mapping[str, str], config: Any, leave_out: Sequence[str] = _PROXIES) -> dict[str, str]:
    kept = {name: value for name, value in base.items() if name not in leave_out}
    return {**kept, "TF_CONFIG": json.dumps(config)}


_JSON = N_("a variable of the environment is a text; TensorFlow reads JSON, in which strings have double quotes")
_ENVIRONMENT = Exercise(
    "06.environment",
    right=_environment,
    wrong={
        "{'TF_CONFIG': json.dumps(config)}": "the process needs the rest of the environment as well, PATH for one",
        "_environment(base, config, ())": "with a proxy the workers send their messages there, and wait forever",
        "_environment(base, config, ('http_proxy', 'https_proxy'))": (
            "the names of proxies are in use in capital letters, too"
        ),
        "{**_environment(base, config), 'TF_CONFIG': str(config)}": _JSON,
        _in_place: "this changes `base` itself, which may be the notebook's own environment: make a copy",
        "{**_environment(base, config), 'TF_CONFIG': config}": _JSON,
    },
    drawn=_environments,
    play=_with_plain_json,
    hint="a new dictionary: what is in base without four names, and TF_CONFIG",
)


def _as_text(answer: Callable[..., Any], folder: str, index: int) -> Any:
    """What an answer makes, a path as its text: "out/worker-1" for "./out/worker-1" and Path("out", "worker-1")."""
    made = answer(folder, index)
    return Path(made).as_posix() if isinstance(made, str | PurePath) else made


_SHARED = N_("two workers that write to one file destroy each other's")
_PLACE = Exercise(
    "06.place",
    right=lambda folder, index: folder if index == 0 else f"{folder}/worker-{index}",
    wrong={
        "folder": _SHARED,
        "f'{folder}/worker-{index}'": "",
        "folder if index == 0 else f'{folder}/worker'": _SHARED,
    },
    plain=[("out", 0), ("out", 1), ("runs/7", 0)],
    drawn=lambda draw: [(f"runs/{draw.randrange(9)}", index) for index in (1, 2, 5)],
    play=_as_text,
    hint="the chief's is the folder itself, another worker's is in it",
)


def _hint_for(folder: str | Path, baseline: Any, draw: random.Random) -> str:
    """What is wrong with the weights that two processes left in `folder`. baseline: its first result are weights.

    draw: not needed, as the learner made the runs.
    """
    places = [Path(folder), Path(folder) / "worker-1"]
    files = [place / "weights.npz" for place in places]
    if not any(file.exists() for file in files):
        words = _("{exercise} is not solved yet: no process has written its weights", exercise="06.train")
        raise NotSolved(words, remedy=_("write train.py, or look into log(0) for the reason why it failed"))
    for index, file in enumerate(files):
        if not file.exists():
            words = N_("worker {worker} has left no {file} in its place, {place}; see its log")
            return _(words, worker=index, file=file.name, place=file.parent.as_posix())
    try:
        (mine, replicas), (others, __) = map(_read, files)
    except (ValueError, OSError, TypeError, zipfile.BadZipFile) as error:
        return _("a weights.npz can't be read ({error}); is it written by np.savez, and at the end?", error=error)
    alone = [np.asarray(weight) for weight in baseline.results[0]]
    shapes = [weight.shape for weight in alone]
    if [weight.shape for weight in mine] != shapes or [weight.shape for weight in others] != shapes:
        return _("these are not the weights of this model, in its order: save model.get_weights()")
    if replicas != 2:
        words = N_("replicas={replicas}: two workers with one device each have two. Which strategy reads TF_CONFIG?")
        return _(words, replicas=replicas)
    if not _apart(mine, others) <= _CLOSE:
        return _("the workers hold different weights: was the model made in the strategy's scope?")
    if _apart(mine, alone) == 0:
        return _(
            "these are one device's weights to the last bit; two replicas add up in another order, and round another "
            "way. Which strategy reads TF_CONFIG, and is `replicas` what it says?"
        )
    if not _apart(mine, alone) <= _CLOSE:  # a weight that is no number is not close either
        return _(
            "the workers agree with each other, and not with one device: was the seed set before the model was made, "
            "and do all of them divide the same global batch?"
        )
    return ""


def _read(file: Path) -> tuple[list[Any], int | None]:
    """The weights in a file, and the number of replicas that it says there were."""
    with np.load(file) as found:
        weights = [found[name] for name in found.files if name != "replicas"]
        return weights, int(found["replicas"]) if "replicas" in found.files else None


def _apart(ones: Sequence[Any], others: Sequence[Any]) -> float:
    return max(float(np.abs(one - other).max()) for one, other in zip(ones, others, strict=True))


EXERCISES = [_CONFIG, _ENVIRONMENT, _PLACE, Trial("06.train", _hint_for, of_function=False)]
