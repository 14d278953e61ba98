"""Interrupt, Restart and a closed page during a run: what the learner expects, and no process left."""

from __future__ import annotations

import re

import pytest
from waiting import wait_gone

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def running(server, visit):
    """Lesson 00 with a run of 40 steps of a second each under way: the page, the run's cell, its workers."""

    def start():
        page = visit(server, "00_start_here")
        cell = page.start_slow(seconds=1.0)
        page.wait_step(2)
        assert len(server.workers) == 2
        return page, cell, server.workers

    return start


@pytest.mark.parametrize("by", ["toolbar", "button"])
def test_interrupt_ends_the_run_and_the_next_one_works(server, running, by):
    page, cell, workers = running()
    button = page.dashboards.first.get_by_role("button", name="cancel")
    if by == "button":
        page.shot("cancel", cell)
        button.click()
    else:
        page.toolbar("interrupt-kernel")
    page.wait_idle(10)
    assert wait_gone(workers) == []
    said = cell.locator(".jp-OutputArea-output").last.inner_text()
    assert re.match(r"RunInterrupted: after [\d.]+ s; the workers are stopped,", said.strip()), said
    view = page.dashboards.first.text_content()
    assert "cluster of 2 workers: interrupted" in view
    assert "ETA" not in view
    assert button.count() == 0
    page.shot("interrupted", cell)
    assert_runs(page)


def test_restart_ends_the_run_and_its_workers(server, running):
    page, _, workers = running()
    (kernel,) = server.kernels
    page.toolbar("restart-kernel")
    page.confirm()
    assert wait_gone([kernel, *workers], seconds=10) == []
    page.wait_idle(60)
    page.run("import dtk")
    page.run("def train(strategy, global_batch=128")
    assert_runs(page)


def test_a_page_closed_during_a_run_loses_nothing(server, visit, running):
    page, _, workers = running()
    page.save()
    page.page.close()
    again = visit(server, "00_start_here", again=True)
    assert server.workers == workers, "the run goes on"
    # A kernel at work doesn't answer a page that asks for its widgets: it has them once the run has ended.
    again.wait_idle(120)
    again.dashboards.first.wait_for()
    again.shot("reopened", again.dashboards.first)
    assert "finished in" in again.dashboards.first.text_content()
    again.type("slow, slow.results")
    shown = again.run("slow, slow.results")
    again.wait_idle(30)
    assert "cluster workers=2 replicas=2 steps=40" in shown.locator(".jp-OutputArea-output").inner_text()


def assert_runs(page) -> None:
    """The lesson's own run works."""
    cell = page.run("run = dtk.run(train, workers=2)")
    page.wait_idle(120)
    assert re.search(r"cluster of 2 workers: finished in [\d.]+ s, step 40\b", cell.inner_text())
