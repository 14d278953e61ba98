// Mounts the labs: <div class="dtk-lab" data-lab="what-if"></div>, of "loss-scaling", "ring" and "replay".

import { LIMITS, predict } from "./model.js";
import { ask, choice, el, picture, round, setLab, setWords, slider, svg, t } from "./page.js";
import { replay } from "./replay.js";
import { DIVISORS, numbers, ring } from "./steps.js";

const sequence = (first, last) => Array.from({ length: last - first + 1 }, (_, k) => first + k);

function whatIf(place, data) {
  const links = data.links, job = data.job;
  const counts = [...sequence(0, 13).map((power) => 2 ** power), 10000];
  const open = () => {
    const drawn = el("div"), says = el("p", { class: "dtk-says", role: "status" });
    const draw = () => {
      const now = { ...job, batch: batch.value(), gradient_bytes: size.value() * 1e6, overlap: overlap.value(), spread: spread.value(), pack_bytes: (job.pack_bytes / job.gradient_bytes) * size.value() * 1e6 };
      const cluster = { link: links[link.value()], algorithm: algorithm.value() };
      const rows = counts.map((n) => predict(now, cluster, n)), here = predict(now, cluster, workers.value());
      drawn.replaceChildren(throughput(rows, here, data.limits));
      says.textContent = inWords(here);
    };
    const workers = slider(t("workers"), counts, 1024, (n) => n.toLocaleString("en-US"), draw);
    const batch = slider(t("per-replica batch"), sequence(0, 10).map((power) => 2 ** power), 64, String, draw);
    const size = slider(t("gradients, MB"), [0.1, 1, 10, 30, job.gradient_bytes / 1e6, 300, 1000, 3000], job.gradient_bytes / 1e6, round, draw);
    const spread = slider(t("stragglers ±"), sequence(0, 50).map((k) => k / 100), job.spread, (part) => `${Math.round(100 * part)} %`, draw);
    const link = choice(t("link"), Object.keys(links).map((name) => [name, links[name].text]), "100 Gb/s Ethernet", draw);
    const algorithm = choice(t("all-reduce"), [["ring", t("ring")], ["halving_doubling", t("halving and doubling")], ["tree", t("tree")]], "ring", draw);
    const overlap = slider(t("overlap"), sequence(0, 10).map((k) => k / 10), job.overlap, (part) => `${Math.round(100 * part)} %`, draw);
    place.append(el("div", { class: "dtk-controls" }, ...[workers, batch, size, spread, link, algorithm, overlap].map((each) => each.row)), el("div", { class: "dtk-scroll" }, drawn), legend(LIMITS.slice(0, 4).map((name) => [data.limits[name], t(name)])), says);
    draw();
  };
  const at = (name) => predict(job, { link: links[name], algorithm: "ring" }, 1024).throughput;
  const times = at("100 Gb/s Ethernet") / at("10 Gb/s Ethernet");
  const reason = t("It is {times} times: a ring of 1,024 workers waits for 2,046 messages in a row for each part of the gradient, however wide the wire is. Move the sliders and see.", { times: round(times, 2) });
  place.append(ask(t("1,024 workers train ResNet-50; a ring over 10 Gb/s Ethernet is replaced by 100 Gb/s. How many times as many examples a second?"), [t("less than 3 times"), t("3 to 8 times"), t("10 times, as the wire is")], times < 3 ? 0 : times < 8 ? 1 : 2, reason, open));
}

function inWords(row) {
  const values = { workers: row.workers.toLocaleString("en-US"), rate: round(row.throughput), part: Math.round(100 * row.efficiency) };
  const said = t("{workers} workers: {rate} examples/s, {part} % of {workers} times one worker.", values);
  return `${said} ${row.slowed_by === "compute" ? t("At most a tenth is lost.") : t("Most is lost by: {limit}.", { limit: t(row.slowed_by) })}`;
}

function throughput(rows, here, colors) {
  const [left, right, top, bottom, most] = [62, 500, 14, 190, 10000];
  const highest = rows.at(-1).ideal, lowest = rows[0].throughput / 2;
  const x = (n) => left + ((right - left) * Math.log(n)) / Math.log(most);
  const y = (rate) => bottom - ((bottom - top) * Math.log(rate / lowest)) / Math.log(highest / lowest);
  const line = (name) => rows.map((row) => `${x(row.workers)},${y(row[name])}`).join(" ");
  const decades = sequence(Math.ceil(Math.log10(lowest)), Math.floor(Math.log10(highest)));
  const marks = [];
  for (const power of decades) {
    const rate = 10 ** power;
    marks.push(svg("line", { class: "axis", x1: left, x2: right, y1: y(rate), y2: y(rate) }));
    marks.push(svg("text", { class: "faint", x: left - 6, y: y(rate) + 4, "text-anchor": "end" }, rate.toLocaleString("en-US", { notation: "compact" })));
  }
  for (const n of [1, 10, 100, 1000, 10000]) marks.push(svg("text", { class: "faint", x: x(n), y: bottom + 18, "text-anchor": "middle" }, n.toLocaleString("en-US")));
  const dots = rows.map((row) => svg("circle", { cx: x(row.workers), cy: y(row.throughput), r: 4.5, fill: colors[row.slowed_by] }, svg("title", {}, inWords(row))));
  const said = t("Throughput for 1 to 10,000 workers, on logarithmic axes, beside the dashed line of what as many single workers would reach.");
  return picture(520, 236, said, ...marks,
    svg("polyline", { class: "ink", points: line("ideal"), "stroke-dasharray": "5 4" }), svg("polyline", { class: "ink", points: line("throughput"), "stroke-width": 2 }), ...dots,
    svg("circle", { class: "ink", cx: x(here.workers), cy: y(here.throughput), r: 8, "stroke-width": 2, "pointer-events": "none" }),
    svg("text", { x: left, y: bottom + 40 }, t("examples/s, by workers; dashed: n times one worker")));
}

function legend(entries) {
  return el("ul", { class: "dtk-legend" }, ...entries.map(([color, name]) => el("li", {}, el("span", { style: `background:${color}` }), name)));
}

function lossScaling(place, data) {
  const open = () => {
    const drawn = el("div"), says = el("p", { class: "dtk-says", role: "status" });
    const draw = () => {
      const now = numbers(data.losses, replicas.value(), examples.value(), divisor.value());
      drawn.replaceChildren(bars(now, data.colors), legend(now.shares.map((_, k) => [data.colors[k], t("replica {replica}", { replica: k })])));
      const sum = `${now.shares.map((share) => round(share)).join(" + ")} = ${round(now.loss)}`;
      const right = Math.abs(now.ratio - 1) < 1e-9;
      const verdict = right ? t("The loss and the gradient are one device's.") : t("The loss, the gradient and so the step are {ratio} times one device's.", { ratio: round(now.ratio) });
      says.textContent = `${sum}; ${t("one device: {alone}.", { alone: round(now.alone) })} ${verdict}`;
    };
    const replicas = slider(t("replicas"), [1, 2, 3, 4], 2, String, draw);
    const examples = slider(t("examples of each"), sequence(1, 8), 2, String, draw);
    const divisor = choice(t("divide by the"), DIVISORS.map((name) => [name, t(name)]), "per-replica batch", draw);
    place.append(el("div", { class: "dtk-controls" }, replicas.row, examples.row, divisor.row), el("div", { class: "dtk-scroll" }, drawn), says);
    draw();
  };
  place.append(ask(t("Losses 2 and 3 lie on replica 0, losses 4 and 5 on replica 1. Each divides the sum of its own by its own two examples; the results are added up. Compared with one device, which takes the mean of all four, that is"), [t("half as much"), t("the same"), t("twice as much")], 2, t("2.5 + 4.5 = 7, and the mean is 3.5: with two replicas each example counts twice. What divides rightly for any number?"), open));
}

function bars(now, colors) {
  const [left, right] = [84, 500], widest = Math.max(2, now.ratio * 1.1);
  const x = (value) => left + ((right - left) * value) / widest;
  const parts = [];
  [[t("loss"), now.shares, now.alone, 26], [t("gradient"), now.slopes, now.slopeAlone, 76]].forEach(([name, values, unit, y]) => {
    let from = 0;
    parts.push(svg("text", { x: left - 8, y: y + 21, "text-anchor": "end" }, name));
    values.forEach((value, k) => {
      parts.push(svg("rect", { x: x(from), y, width: Math.max(0, x(from + value / unit) - x(from) - 1), height: 32, fill: colors[k] }, svg("title", {}, `${t("replica {replica}", { replica: k })}: ${round(value)}`)));
      from += value / unit;
    });
  });
  const said = t("Loss and gradient of all replicas together: {ratio} times one device's, the dashed line.", { ratio: round(now.ratio) });
  const scale = sequence(0, Math.floor(widest)).filter((times) => times !== 1);
  const marks = scale.map((times) => svg("text", { class: "faint", x: x(times), y: 134, "text-anchor": "middle" }, String(times)));
  return picture(520, 140, said, ...parts, ...marks, svg("line", { class: "ink", x1: x(1), x2: x(1), y1: 14, y2: 118, "stroke-width": 2, "stroke-dasharray": "5 4" }), svg("text", { class: "faint", x: x(1), y: 134, "text-anchor": "middle" }, t("one device")));
}

function ringLab(place, data) {
  const open = () => {
    const drawn = el("div"), colors = el("div"), says = el("p", { class: "dtk-says", role: "status" });
    let step = 0;
    const draw = () => {
      const n = workers.value(), story = ring(n);
      step = Math.min(step, 2 * (n - 1));
      drawn.replaceChildren(grid(story, step, n, data.colors));
      colors.replaceChildren(legend(sequence(0, n - 1).map((k) => [data.colors[k], t("gradient of worker {worker}", { worker: k })])));
      back.disabled = step === 0;
      on.disabled = step === 2 * (n - 1);
      says.textContent = tell(story, step, n);
    };
    const move = (by) => { step += by; draw(); };
    const workers = slider(t("workers"), [2, 3, 4, 5, 6], 4, String, () => { step = 0; draw(); });
    const back = el("button", { type: "button", onclick: () => move(-1) }, t("Back")), on = el("button", { type: "button", onclick: () => move(1) }, t("Next step"));
    place.append(el("div", { class: "dtk-controls" }, workers.row), back, on, el("div", { class: "dtk-scroll", tabindex: 0, role: "group", "aria-label": t("chunks") }, drawn), colors, says);
    draw();
  };
  place.append(ask(t("Four workers add up their gradients in a ring, each sending one quarter at a time. After how many steps has every worker the whole sum?"), ["3", "4", "6"], 2, t("It is 2 (n - 1): three steps to add up, three more to hand the sums round."), open));
}

function tell(story, step, n) {
  if (step === 0) return t("At the start each worker holds its own gradient, cut into {n} chunks.", { n });
  const said = story.messages[step - 1].map(({ sender, receiver, chunk, adds }) => {
    const values = { sender, receiver, chunk };
    return adds ? t("worker {sender} sends chunk {chunk} to worker {receiver}, which adds it", values) : t("worker {sender} sends chunk {chunk} to worker {receiver}, which keeps it", values);
  });
  const end = step === 2 * (n - 1) ? ` ${t("Now every worker has the whole sum.")}` : "";
  return `${t("Step {step} of {steps}:", { step, steps: 2 * (n - 1) })} ${said.join("; ")}.${end}`;
}

function grid(story, step, n, colors) {
  const [cell, left, top] = [52, 84, 26], parts = [];
  for (let worker = 0; worker < n; worker++) {
    parts.push(svg("text", { x: left - 8, y: top + worker * (cell + 8) + 28, "text-anchor": "end" }, t("worker {worker}", { worker })));
    for (let chunk = 0; chunk < n; chunk++) {
      const held = story.holds[step][worker][chunk], x = left + chunk * (cell + 8), y = top + worker * (cell + 8);
      if (worker === 0) parts.push(svg("text", { class: "faint", x: x + cell / 2, y: 16, "text-anchor": "middle" }, t("chunk {chunk}", { chunk })));
      held.forEach((owner) => parts.push(svg("rect", { x: x + (owner * cell) / n, y, width: cell / n, height: cell, fill: colors[owner] })));
      parts.push(svg("rect", { class: "ink", x, y, width: cell, height: cell, "stroke-width": held.length === n ? 2.6 : 0.8 }));
      if (step > 0 && story.messages[step - 1].some((each) => each.receiver === worker && each.chunk === chunk)) {
        parts.push(svg("circle", { class: "ink paper", cx: x + cell - 8, cy: y + 8, r: 5, "stroke-width": 1.6, style: "fill:var(--paper)" }));
      }
    }
  }
  const whole = story.holds[step].flat().filter((held) => held.length === n).length;
  return picture(left + 6 * (cell + 8), top + n * (cell + 8), t("After step {step}, {whole} of {all} chunks hold the whole sum.", { step, whole, all: n * n }), ...parts);
}

const LABS = { "what-if": whatIf, "loss-scaling": lossScaling, ring: ringLab, replay };

async function mount() {
  const places = document.querySelectorAll("[data-lab]");
  if (!places.length) return; // the site has this script on every page
  const load = async (name) => (await fetch(new URL(name, import.meta.url))).json();
  const language = document.documentElement.lang.slice(0, 2);
  const [data, zh] = await Promise.all([load("data.json"), language === "zh" ? load("zh.json") : {}]);
  setWords(zh);
  for (const place of places) {
    place.replaceChildren();
    setLab(place.dataset.lab);
    LABS[place.dataset.lab](place, data);
  }
  document.documentElement.dataset.dtkLabs = "ready";
}

mount();
