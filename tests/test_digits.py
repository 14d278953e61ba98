"""Measured numbers for readers."""

from __future__ import annotations

import pytest

from dtk import language


@pytest.mark.parametrize("value", [0.000123, 0.5, 1, 12.3, 999, 999.6, 1000, 123456, 999_999, 1e6, 7.7e8, 1e12])
def test_three_digits_and_no_power_of_ten(value):
    said = language.three(value)
    assert "e+" not in said
    assert "e-" not in said
    number, _, size = said.partition(" ")
    read = float(number.replace(",", "")) * {"": 1, "million": 1e6, "billion": 1e9}[size]
    assert read == pytest.approx(value, rel=5e-3)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (40_000, "40,000"),
        (1e6, "100 万"),
        (2_780_000, "278 万"),
        (99_960_000, "1 亿"),
        (1.2e9, "12 亿"),
        (1e12, "10,000 亿"),
    ],
)
def test_chinese_counts_large_numbers_in_units_of_its_own(monkeypatch, value, said):
    monkeypatch.setenv("DTK_LANG", "zh")
    assert language.three(value) == said
