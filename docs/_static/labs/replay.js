// A recorded run, played: what each worker did when, the shares of the loss, who waits for whom.

import { ask, choice, el, picture, round, slider, svg, t } from "./page.js";

const PARTS = ["python", "input", "compute", "waiting", "all_reduce"];
const NAMES = { python: "Python", input: "input", compute: "computing", waiting: "waiting", all_reduce: "all-reduce" };

export function replay(place, data) {
  const open = () => {
    const drawn = el("div"), says = el("p", { class: "dtk-says", role: "status" });
    let playing = null;
    const stop = () => { clearInterval(playing); playing = null; play.textContent = t("Play"); };
    const draw = () => {
      const run = data.runs[which.value()];
      drawn.replaceChildren(lanes(run, step.value(), data), shares(run, step.value(), data));
      says.textContent = tell(run, step.value());
    };
    const which = choice(t("run"), [["straggler", t("worker 1 sleeps 50 ms in each step")], ["even", t("both workers alike")]], "straggler", () => { stop(); draw(); });
    const steps = data.runs.straggler.steps.map((each) => each.step);
    const step = slider(t("step"), steps, steps[0], String, draw);
    const play = el("button", { type: "button", onclick: () => {
      if (playing) { stop(); return; }
      play.textContent = t("Pause");
      let at = step.value() === steps.at(-1) ? 0 : steps.indexOf(step.value());
      playing = setInterval(() => { step.set(steps[at]); draw(); if (++at === steps.length) stop(); }, 700);
    } }, t("Play"));
    place.append(el("div", { class: "dtk-controls" }, which.row, step.row), play, el("div", { class: "dtk-scroll" }, drawn),
      el("ul", { class: "dtk-legend" }, ...PARTS.map((name) => el("li", {}, el("span", { style: `background:${data.parts[name]}` }), t(NAMES[name])))), says);
    draw();
  };
  place.append(ask(t("Two workers train together, and worker 1 sleeps 50 ms before it computes, in each step. What does that cost?"), [t("nothing: worker 0 goes on alone"), t("half of it: the cluster takes the mean of both"), t("all of it: worker 0 waits in the all-reduce")], 2, t("A synchronous step ends when the slowest has brought its gradient. Below is a run that was recorded."), open));
}

const total = (parts) => PARTS.reduce((sum, name) => sum + parts[name], 0);

/** The workers' lanes in this step, on one scale for the whole run. */
function lanes(run, step, data) {
  const [left, right] = [84, 500], now = run.steps.find((each) => each.step === step);
  const longest = Math.max(...run.steps.flatMap((each) => each.workers.map(total)));
  const x = (seconds) => left + ((right - left) * seconds) / longest;
  const parts = now.workers.flatMap((worker, k) => {
    let from = 0;
    const y = 12 + 44 * k;
    const lane = PARTS.map((name) => {
      const block = svg("rect", { x: x(from), y, width: x(from + worker[name]) - x(from), height: 32, fill: data.parts[name] }, svg("title", {}, `${t(NAMES[name])}: ${round(1000 * worker[name])} ms`));
      from += worker[name];
      return block;
    });
    return [svg("text", { x: left - 8, y: y + 21, "text-anchor": "end" }, t("worker {worker}", { worker: k })), ...lane];
  });
  const ticks = [0, 0.5, 1].map((part) => svg("text", { class: "faint", x: x(part * longest), y: 118, "text-anchor": ["start", "middle", "end"][2 * part] }, `${round(1000 * part * longest, 2)} ms`));
  return picture(520, 126, tell(run, step), ...parts, ...ticks);
}

/** The loss of all steps up to this one, as the workers' shares, stacked. */
function shares(run, step, data) {
  const [left, right, top, bottom] = [84, 500, 14, 116];
  const highest = Math.max(...run.steps.map((each) => each.workers.reduce((sum, worker) => sum + worker.share, 0)));
  const wide = (right - left) / run.steps.length;
  const parts = run.steps.filter((each) => each.step <= step).flatMap((each, at) => {
    let from = bottom;
    return each.workers.map((worker, k) => {
      const high = ((bottom - top) * worker.share) / highest;
      from -= high;
      return svg("rect", { x: left + at * wide + 1, y: from, width: wide - 2, height: high, fill: data.colors[k] });
    });
  });
  return picture(520, 136, t("Loss of each step up to step {step}, a share for each worker.", { step }), ...parts,
    svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }), svg("text", { x: left - 8, y: (top + bottom) / 2, "text-anchor": "end" }, t("loss")), svg("text", { class: "faint", x: left, y: bottom + 17 }, t("the shares of worker 0 (blue) and worker 1, step by step")));
}

function tell(run, step) {
  const now = run.steps.find((each) => each.step === step);
  const waits = now.workers.map((worker) => worker.waiting), who = waits.indexOf(Math.max(...waits));
  const period = round(1000 * Math.max(...now.workers.map(total)));
  const loss = round(now.workers.reduce((sum, worker) => sum + worker.share, 0));
  const values = { step, period, loss, worker: who, other: 1 - who, wait: round(1000 * waits[who]) };
  return t("Step {step} took {period} ms; worker {worker} waited {wait} ms of it for worker {other}. Loss: {loss}, the sum of both shares.", values);
}
