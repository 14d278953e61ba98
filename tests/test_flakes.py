"""What `benchmarks/flakes.py` runs next, and what it says of it."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import flakes

QUICK, SLOW, NEW = "tests/test_a.py::test_quick", "tests/test_b.py::test_slow[x: y]", "tests/test_c.py::test_new"


def row(test, outcome="passed", seconds=1.0):
    return {"test": test, "outcome": outcome, "seconds": seconds, "order": 7, "load": 2, "at": 0, "said": "it waited"}


def chosen(tests, done, times=50):
    return flakes.next_batch(tests, done, times, random.Random(0))


def test_the_tests_with_the_fewest_runs_come_first_and_the_quickest_of_these():
    assert chosen([QUICK, SLOW, NEW], [row(QUICK), row(SLOW, seconds=90.0)]) == ([NEW], 1)
    assert chosen([SLOW, QUICK], [row(QUICK), row(SLOW, seconds=90.0)]) == ([QUICK], flakes.PASSES)
    assert chosen([SLOW], [row(SLOW, seconds=90.0)] * 2, times=3) == ([SLOW], 1), "never more than are asked for"


def test_it_ends_where_all_have_run_often_enough_or_are_skipped():
    assert chosen([QUICK, SLOW], [row(QUICK)] * 3 + [row(SLOW, "skipped")], times=3) is None


def test_a_files_tests_stay_together_in_an_order_that_the_seed_draws():
    items = [SimpleNamespace(path=path, name=f"{path}{number}") for path in "ab" for number in range(9)]
    orders = [flakes.in_another_order(items, seed) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert all(sorted(item.name for item in order) == sorted(item.name for item in items) for order in orders)
    assert [len({item.path for item in order[:9]}) for order in orders] == [1, 1, 1]


def test_the_table_has_each_failure_with_its_order():
    said = flakes.table([QUICK, SLOW, NEW], [row(QUICK), row(SLOW), row(SLOW, "failed"), row(NEW, "skipped")])
    assert "| tests/test_b.py | 1 | 2 | 1 |" in said
    assert "| **2 of 3 tests** | | **3** | **1** |" in said
    assert f"{SLOW}: failed 1 of 2; order 7\nit waited" in said
    assert "less than 75.00% of runs" in flakes.table([QUICK], [row(QUICK)] * 4)
