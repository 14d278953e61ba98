"""Search, as a reader does it, in both languages."""

from __future__ import annotations

import pytest
from building.extension import Pairs

QUERIES = ("全局批次", "dtk.verify 检查", "TF_CONFIG 怎么写?", "learning rate", "环", "批次size 64", "Ω ф é")


def found(tab):
    tab.wait_for_selector("#search-results li a")
    tab.wait_for_function("document.querySelector('#search-results .search-summary')?.textContent.match(/\\d/)")
    return tab.eval_on_selector_all("#search-results li > a", "all => all.map((one) => one.getAttribute('href'))")


@pytest.mark.parametrize(
    ("tree", "words", "page"),
    [
        ("", "learning rate", "lessons/10_batch_and_rate.html"),
        ("", "straggler", "lessons/08_measuring.html"),
        ("", "TF_CONFIG", "lessons/04_keras_fit.html"),
        ("zh/", "全局批次", "lessons/02_loss_scaling.html"),
        ("zh/", "滑动统计量", "lessons/03_mirrored_strategy.html"),
        ("zh/", "学习率 预热", "lessons/10_batch_and_rate.html"),
        ("zh/", "环", "lessons/01_all_reduce.html"),
    ],
)
def test_what_is_looked_for_is_found(visit, reports, tree, words, page):
    """From the home page by the keyboard, to a page that has the words."""
    tab = visit(f"{tree}index.html")
    tab.keyboard.press("Control+k")
    field = tab.locator("dialog[open] input[type=search]")
    field.wait_for()
    tab.keyboard.type(words)
    tab.keyboard.press("Enter")
    pages = found(tab)
    place = reports / "views"
    place.mkdir(exist_ok=True)
    tab.screenshot(path=place / f"search-{tree.strip('/')}-{words}.png")
    assert page in [link.partition("?")[0].partition("#")[0] for link in pages]
    tab.locator(f"#search-results li > a[href^='{page}']").first.click()
    tab.wait_for_load_state("load")
    assert words.split()[0].lower() in tab.locator("main").inner_text().lower()


def test_a_phrase_of_chinese_is_not_found_where_its_parts_alone_are(visit):
    """全局步数 is nowhere, 全局 and 步数 are."""
    tab = visit("zh/search.html?q=全局步数")
    tab.wait_for_function("document.querySelector('#search-results').textContent.length > 20")
    assert not tab.locator("#search-results li").count()


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_is_divided_as_the_pages_are(visit, query):
    tab = visit("zh/search.html")
    in_browser = tab.evaluate("(query) => splitQuery(query)", query)
    on_pages = Pairs({}).split(query)
    assert set(in_browser) <= set(on_pages)
    assert {part for part in on_pages if len(part) > 1} <= set(in_browser)
