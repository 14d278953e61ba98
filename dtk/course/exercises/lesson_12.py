"""Exercises of lesson 12: nodes from Slurm's text, who a worker is, an all-reduce by cable, whose files, and cost."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial

from dtk.course.exercise import Exercise, Hints, tf_config


def _texts(draw: random.Random) -> list[tuple[str]]:
    """Lists of nodes as Slurm writes them."""
    first = draw.randint(7, 9)
    name = draw.choice(["cpu", "node", "tesla"])
    return [
        ("gpu[03-05,9]",),
        ("login1",),
        ("a[1-2],b7",),
        (f"rack2-[0{first}-{first + 4:02d}]",),
        (f"{name}[00{first},{first + 90}-{first + 93}],{name}x[{first}-{first + 1}]",),
        (f"x{first},y{first},{name}[0{first - 5}-0{first - 2},1{first}]",),
    ]


def _expanded(text: str, width: Callable[[str], int] = len, after: int = 1, groups: int | None = None) -> list[str]:
    """width: of a number, from the range's first. after: what is added to a range's last. groups: how many are read."""
    found = []
    for name, inside in re.findall(r"([^,\[]+)(?:\[([^\]]*)\])?", text)[:groups]:
        for part in inside.split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + after) if inside else ()
            found += [f"{name}{number:0{width(first)}d}" for number in numbers] or [name] * (not inside)
    return found


_HOSTS = Exercise(
    "12.hosts",
    right=_expanded,
    wrong={
        partial(_expanded, width=lambda first: 1): "no node has that name: the zeros in front belong to it",
        partial(_expanded, after=0): "a range's last node belongs to it",
        "text.split(',')": "",
        partial(_expanded, groups=1): "after the first name there may be others",
    },
    drawn=_texts,
    hint="part the text into names with or without brackets first, then what is in the brackets at its commas",
)


def _of_slurm(index: int, hosts: list[str]) -> dict[str, str]:
    return {"SLURM_LOCALID": "0", "SLURM_NTASKS": str(len(hosts)), "SLURM_PROCID": str(index)}


def _index(env: dict[str, str]) -> int:
    return int(env["SLURM_PROCID"] if "SLURM_PROCID" in env else env["JOB_COMPLETION_INDEX"])


def _addresses(hosts: list[str]) -> list[str]:
    return [f"{host}:23456" for host in hosts]


def _environments(draw: random.Random) -> list[tuple[dict[str, str], list[str]]]:
    found: list[tuple[dict[str, str], list[str]]] = []
    for count in (2, 8, 12):
        hosts, index = [f"10.0.0.{number}" for number in range(1, count + 1)], draw.randint(1, count - 1)
        found += [(_of_slurm(index, hosts), hosts), ({"JOB_COMPLETION_INDEX": str(index)}, hosts)]
    return found


_NODES = ["gpu03", "gpu04", "gpu05", "gpu9"]
_PODS = ["train-0.train", "train-1.train", "train-2.train"]
_CONFIG = Exercise(
    "12.config",
    right=lambda env, hosts: tf_config(_addresses(hosts), _index(env)),
    wrong={
        "tf_config(_addresses(hosts), str(_index(env)))": "in the environment all is text; the index is a number",
        "tf_config(_addresses(hosts), int(env.get('SLURM_PROCID', 0)))": "Kubernetes sets none of Slurm's variables",
        "tf_config(_addresses([hosts[_index(env)]]), _index(env))": Hints.ALL_ADDRESSES,
    },
    plain=[
        (_of_slurm(2, _NODES), _NODES),
        ({"JOB_COMPLETION_INDEX": "1"}, _PODS),
        (_of_slurm(0, _NODES), _NODES),
        ({"JOB_COMPLETION_INDEX": "0"}, _PODS),
    ],
    drawn=_environments,
)


def _seconds(workers: int, size: float, latency: float, gigabits: float) -> float:
    return 2 * (workers - 1) * latency + 2 * (workers - 1) / workers * size * 8 / (gigabits * 1e9)


_ALL_REDUCE = Exercise(
    "12.all_reduce",
    right=_seconds,
    wrong={
        "_seconds(workers, size / 8, latency, gigabits)": "networks are sold in bits a second, and a byte has 8",
        "2 * (workers - 1) * latency + size * 8 / (gigabits * 1e9)": Hints.RING_BYTES,
        "_seconds(workers, size, latency, gigabits) / 2": Hints.HALF_RING,
    },
    # (workers, bytes, s of latency, Gb/s)
    plain=[(2, 100_000_000, 14e-6, 1), (1, 100_000_000, 14e-6, 1), (8, 100_000_000, 14e-6, 10)],
    drawn=lambda draw: [
        (workers, draw.randint(1, 900) * 10**6, draw.randint(5, 90) * 1e-6, gigabits)
        for workers, gigabits in ((3, 1), (16, 25), (64, 100), (500, 400))
    ],
    hint="the bytes that a worker sends, in bits, by the bits of a second; and the messages in a row",
)


def _parts(count: int) -> list[str]:
    return [f"part-{number:02d}.tfrecord" for number in range(count)]


_MINE = Exercise(
    "12.mine",
    right=lambda files, worker, workers: files[worker::workers],
    wrong={
        "files[worker * -(-len(files) // workers):(worker + 1) * -(-len(files) // workers)]": (
            "these are neighbors, a block for each worker; files are dealt out in turn"
        ),
        "files[worker + 1::workers]": Hints.FROM_0,
        "list(files)": Hints.EVERYTHING,
    },
    plain=[(_parts(7), 1, 2), (_parts(7), 0, 2), (_parts(8), 3, 4), (_parts(2), 2, 3)],
    drawn=lambda draw: [(_parts(draw.randint(9, 20)), draw.randint(0, workers - 1), workers) for workers in (3, 4, 5)],
)


def _total(steps: int, every: int, dies: int) -> int:
    """The steps that are computed in both starts."""
    return dies - 1 + steps - (dies - 1) // every * every


_COST = Exercise(
    "12.cost",
    right=lambda nodes, price, seconds, steps, every, dies: nodes * price * seconds * _total(steps, every, dies) / 3600,
    wrong={
        "nodes * price * seconds * steps / 3600": Hints.LOST_STEPS,
        "price * seconds * _total(steps, every, dies) / 3600": "each node costs money, also those that did not die",
        "nodes * price * seconds * (dies - 1 + steps) / 3600": Hints.FROM_STEP_1,
    },
    # (nodes, price of one for an hour, s a step, steps, a save every so many, the step before which one dies)
    plain=[(8, 3.0, 1.5, 10_000, 500, 5_201), (2, 36.0, 1.0, 33, 11, 20), (4, 2.0, 0.9, 1_000, 100, 301)],
    drawn=lambda draw: [
        (draw.randint(2, 64), draw.randint(1, 9) / 2, draw.randint(1, 9) / 4, 5_000, every, draw.randint(1_000, 4_900))
        for every in (50, 300, 700)
    ],
    hint="how many steps are computed in both starts together; then node-hours, then their price",
)

EXERCISES = [_HOSTS, _CONFIG, _ALL_REDUCE, _MINE, _COST]
