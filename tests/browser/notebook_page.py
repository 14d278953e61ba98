"""A notebook in JupyterLab's page, or in Notebook 7's: what a learner does by mouse and keyboard, and what is seen.

What is done goes through the page's own controls. What is waited for is asked from JupyterLab's application object
(`--expose-app-in-browser`), because a cell that is scrolled away may have no element in the page.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from playwright.sync_api import Locator, Page, expect

SECONDS = 1000.0  # playwright counts in milliseconds

_PANEL = "window.jupyterapp?.shell?.currentWidget"
_KERNEL = f"{_PANEL}?.sessionContext?.session?.kernel"
_STATUS = f"{_KERNEL}?.status"
_CELLS = f"{_PANEL}.content.widgets.filter(cell => cell.model.type === 'code')"
_AT_WORK = f"{_CELLS}.some(cell => (cell.inputArea?.promptNode?.textContent ?? '').includes('*'))"

# A cell far below may not have been drawn yet, and between two cells the kernel is idle: the counts tell.
_ALL_RAN = f"""() => {{
    const cells = {_CELLS}.map(cell => cell.model).filter(model => model.sharedModel.getSource().trim());
    const failed = model => !(model.getMetadata("tags") ?? []).includes("raises-exception")
        && model.outputs.toJSON().some(output => output.output_type === "error");
    return {_STATUS} === "idle" && (cells.every(model => model.executionCount !== null) || cells.some(failed));
}}"""
# JupyterLab moves the page while it draws cells, also away from what was scrolled to.
_IN_SIGHT = """part => {
    const {top, bottom, height} = part.getBoundingClientRect();
    const seen = height > 0 && top < innerHeight - 100 && bottom > 150;
    if (!seen) part.scrollIntoView({block: "center"});
    return seen;
}"""
# What the line of progress beside each bar said, a list a live view, in the order of their appearance.
_WATCH = """() => {
    window.dtkSaid = [];
    const look = () => document.querySelectorAll("progress").forEach(bar => {
        const words = bar.parentElement.textContent, box = bar.closest(".widget-vbox") ?? bar.parentElement;
        const known = window.dtkSaid.find(([view, said]) => view === box);
        if (!known) window.dtkSaid.push([box, [words]]);
        else if (known[1].at(-1) !== words) known[1].push(words);
    });
    new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
}"""

_AT_STEP = """step => window.dtkSaid.some(([bar, said]) => {
    const at = said.at(-1).match(/\\bstep (\\d+)/);
    return (at ? Number(at[1]) : 0) >= step;
})"""

SUCCESS, DANGER = "rgb(76, 175, 80)", "rgb(244, 67, 54)"  # a bar's color where the run has ended

# A run of lesson 00's function, 40 steps, that can be watched.
SLOW = "slow = dtk.run(train, workers=2, faults=[dtk.faults.slow(worker=0, seconds_per_step={:g})])"


class NotebookPage:
    """One open notebook. url: of its page. path: its file. pictures: where screenshots go."""

    def __init__(self, page: Page, url: str, path: Path, pictures: Path):
        self.page, self.url, self.path, self.pictures = page, url, path, pictures
        self.name = path.stem

    def open(self) -> NotebookPage:
        self.page.goto(self.url)
        # Not until the kernel answers, which one at work does only afterwards.
        self.page.wait_for_function(f"{_KERNEL}?.connectionStatus === 'connected'", timeout=60 * SECONDS)
        expect(self.notebook).to_be_visible()
        return self

    @property
    def notebook(self) -> Locator:
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook")

    def cell(self, source: str) -> Locator:
        """The code cell that has this text."""
        return self.notebook.locator(".jp-CodeCell").filter(has=self.page.locator(".jp-InputArea", has_text=source))

    @property
    def dashboards(self) -> Locator:
        """The outputs that are live views of a run; a study's bar, which counts runs, is another element."""
        return self.notebook.locator(".jp-OutputArea-output").filter(has=self.page.locator("progress"))

    def watch(self) -> None:
        """From now on notes, at each change of the page, what the live views say; `moves` tells it."""
        self.page.evaluate(_WATCH)

    @property
    def moves(self) -> list[list[int]]:
        """For each live view watched, the steps that it said it was at, without repetition, in order."""
        said: list[list[str]] = self.page.evaluate("window.dtkSaid.map(([view, words]) => words)")
        return [list(dict.fromkeys(step for step in map(steps_seen, words) if step)) for words in said]

    def start_slow(self, seconds: float = 0.2) -> Locator:
        """In lesson 00, runs its function with so many seconds a step more, and watches; returns the run's cell."""
        self.menu("Edit", "Clear Outputs of All Cells")
        self.watch()
        for source in ("import dtk", "def train(strategy, global_batch=128"):
            self.run(source)
        self.type(SLOW.format(seconds))
        return self.run("slow = dtk.run")

    def open_log_at_work(self, view: Locator) -> None:
        """Opens worker 1's log by the keyboard, while the first run watched, of 40 steps, still trains."""
        self.wait_step(10)
        view.get_by_role("radio", name="worker 1").press("Space")
        expect(view.locator("pre:visible")).to_have_count(1)
        assert self.moves[0][-1] < 40, "it was still training"

    def assert_came_to_its_end(self, view: Locator) -> None:
        """The one run watched moved on, step by step, to the last of 40, and its view says so."""
        steps = [step for view in self.moves for step in view]  # the last frame is drawn anew
        assert steps == sorted(steps)
        assert len(steps) > 5, steps
        assert steps[-1] == 40
        assert "cluster of 2 workers: finished in" in str(view.text_content())
        assert bar_of(view) == (SUCCESS, 1)

    def menu(self, menu: str, item: str) -> None:
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        self.page.locator(".lm-Menu-item", has=self.page.get_by_text(item, exact=True)).click()

    def toolbar(self, command: str) -> None:
        """Presses a button of the notebook's toolbar; command: "interrupt-kernel" and the like."""
        panel = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        panel.locator(f'.jp-NotebookPanel-toolbar [data-command="notebook:{command}"]').click()

    def confirm(self) -> None:
        self.page.locator(".jp-Dialog .jp-mod-accept").click()

    def run_all(self) -> None:
        """Without the stored outputs, which could be taken for new ones."""
        self.menu("Edit", "Clear Outputs of All Cells")
        self.menu("Run", "Run All Cells")
        self.page.wait_for_function(_AT_WORK, timeout=30 * SECONDS)

    def run(self, source: str) -> Locator:
        """Runs the cell that has this text, as Ctrl+Enter does; doesn't wait for it."""
        cell = self.cell(source)
        self.run_cell(cell)
        return cell

    def run_cell(self, cell: Locator) -> None:
        cell.locator(".jp-InputArea-prompt").click()
        self.page.keyboard.press("Control+Enter")

    def type(self, source: str) -> Locator:
        """Writes a new cell at the notebook's end; returns it."""
        cell = self.notebook.locator(".jp-CodeCell").last
        cell.locator(".jp-InputArea-prompt").click()
        before = self.page.evaluate(f"{_CELLS}.length")
        self.page.keyboard.press("b")
        self.page.wait_for_function(f"before => {_CELLS}.length > before", arg=before, timeout=30 * SECONDS)
        new = self.notebook.locator(".jp-CodeCell").last
        new.locator(".cm-content").fill(source)
        return new

    def wait_all_ran(self, seconds: float) -> None:
        """After `run_all`: until every cell has run, or one has failed that is not meant to."""
        self.page.wait_for_function(_ALL_RAN, timeout=seconds * SECONDS)
        self.wait_idle(30)

    def wait_idle(self, seconds: float) -> None:
        """Until no cell in sight waits for its turn and the kernel has nothing to do."""
        self.page.wait_for_function(f"!{_AT_WORK} && {_STATUS} === 'idle'", timeout=seconds * SECONDS)

    def wait_step(self, step: int, seconds: float = 120) -> None:
        """After `watch`: until a live view has said that its run is at this step or further on."""
        self.page.wait_for_function(_AT_STEP, arg=step, timeout=seconds * SECONDS)

    def save(self) -> nbformat.NotebookNode:
        """Saves by the keyboard; returns the notebook as it then is on disk."""
        self.page.keyboard.press("Control+s")
        self.page.wait_for_function(f"!{_PANEL}.context.model.dirty", timeout=30 * SECONDS)
        return nbformat.read(self.path, 4)

    def shot(self, step: str, of: Locator | None = None) -> None:
        """A screenshot, `lesson-step.png`; of: what has to be in sight."""
        if of is not None:
            self.page.wait_for_function(_IN_SIGHT, arg=of.element_handle(), timeout=30 * SECONDS)
        self.page.screenshot(path=self.pictures / f"{self.name}-{step}.png")


def bar_of(view: Locator) -> tuple[str, float]:
    """The color of a live view's bar, and how far it is."""
    color, part = view.locator("progress").evaluate("bar => [bar.style.accentColor, bar.value / bar.max]")
    return color, part


def steps_seen(words: str) -> int:
    """The step that a dashboard's line of progress tells; 0 where it tells none.

    >>> steps_seen("step 12/40, loss 0.5"), steps_seen("no step recorded")
    (12, 0)
    """
    found = re.search(r"\bstep (\d+)", words)
    return int(found[1]) if found else 0


def inject_an_exception(lab: Locator) -> None:
    """In the fault lab, by keyboard: predicts what an exception does, runs it, and sees the prediction confirmed."""
    lab.get_by_role("radio", name="exception").press("Space")
    lab.get_by_role("spinbutton", name="step").press("ArrowDown")
    expect(lab.get_by_role("spinbutton", name="step")).to_have_value("16")
    lab.get_by_role("radio", name="the worker ends, and the run with it").press("Space")
    lab.get_by_role("button", name="run").press("Enter")
    expect(lab).to_contain_text("As predicted: the worker ends", timeout=120 * SECONDS)
    expect(lab).to_contain_text("exception(worker=1, step=16)")
