"""A cluster that stays, in a notebook's page: whose output it is, an error and the ways on, a prompt, names, tables."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.timeout(600)

BEGIN = """import dtk
cluster = dtk.cluster(workers=2)"""
OUTPUT = """%%workers
import dtk, keras, tensorflow as tf
me = strategy.cluster_resolver.task_id
print("on both")
print("I am worker", me)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
model.count_params()"""
FIGURE = """%%worker 1
import matplotlib.pyplot as plt
plt.figure(figsize=(3, 1.5))
plt.plot([1, 2, 4]);"""
ERROR = """%%workers
def share(value):
    return value / me

total = strategy.reduce("sum", tf.constant(share(1.0)), axis=None)"""
REST = """%%worker 0
total = strategy.reduce("sum", tf.constant(0.0), axis=None)"""
FIT = """%%workers
with strategy.scope():
    model.compile(keras.optimizers.SGD(0.01), "mse")
x = tf.random.stateless_uniform((64, 4), (1, 2))
history = model.fit(x, x[:, :3], epochs=2, batch_size=16, callbacks=[dtk.Recorder()])"""
STOPPED = """%%worker 1
weight = 3.0
breakpoint()
print("after it", weight)"""
TABLE = "table = cluster.inspect()\ntable"


def run(page, source, seconds=60.0):
    """A new cell's whole output, after it ran."""
    cell = page.type(source)
    page.run_cell(cell)
    page.wait_idle(seconds)
    return cell.locator(".jp-OutputArea").first


def answer(page, expect, cell, prompt, said):
    """Writes into the prompt of a cell that runs, and waits until it is taken."""
    asked = cell.locator(".jp-Stdin:visible")
    expect(asked.locator(".jp-Stdin-prompt")).to_have_text(prompt, timeout=60_000)
    page.shot("prompt", asked)
    asked.locator(".jp-Stdin-input").fill(said)
    asked.locator(".jp-Stdin-input").press("Enter")
    expect(cell.locator(".jp-OutputArea-output", has_text=f"{prompt}  {said}")).to_have_count(1)


def test_output_errors_prompts_names_and_tables(server, visit, expect):
    page = visit(server, "13_inside_a_replica")
    page.menu("Edit", "Clear Outputs of All Cells")
    run(page, BEGIN, 120)
    output_and_errors(page, expect)
    a_prompt(page, expect)
    said = run(page, FIT)
    expect(said).to_contain_text("Epoch 2/2")
    page.shot("fit", said)
    expect(run(page, "dtk.verify(cluster.so_far())")).to_contain_text("check replicas agree: PASS (8 steps)")
    table = run(page, TABLE)
    expect(table).to_contain_text("model.weights[0]")
    page.shot("table", table)
    page.save()
    page.page.close()
    for look, width, dark in (("dark", 1400, True), ("narrow", 700, False), ("dark-narrow", 700, True)):
        again = visit(server, "13_inside_a_replica", width=width, dark=dark, again=True)
        for step, source in {"output": '("on both")', "error": "def share(value)", "table": "table = "}.items():
            again.shot(f"{look}-{step}", again.cell(source).locator(".jp-OutputArea").first)


def output_and_errors(page, expect):
    said = run(page, OUTPUT)
    expect(said).to_contain_text("[worker 0-1] on both")
    page.shot("output", said)
    expect(run(page, FIGURE).locator("img")).to_have_count(1)
    said = run(page, ERROR)
    expect(said).to_contain_text("[worker 0] raised ZeroDivisionError")
    expect(said).to_contain_text("[worker 1] waits for worker 0 in line 5")
    expect(said).to_contain_text("or: cluster.free() ends the wait")
    page.shot("error", said)
    run(page, REST)
    expect(run(page, "cluster.free()")).to_contain_text("replicas are equal")


def a_prompt(page, expect):
    cell = page.type(STOPPED)
    page.run_cell(cell)
    answer(page, expect, cell, "[worker 1] (Pdb)", "p weight + 1")
    answer(page, expect, cell, "[worker 1] (Pdb)", "c")
    page.wait_idle(30)
    expect(cell).to_contain_text("[worker 1] after it 3.0")
    page.shot("stopped", cell)
    cell.locator(".cm-content").click()  # out of the prompt's field, which JupyterLab keeps the keyboard on
    page.page.keyboard.press("Escape")
