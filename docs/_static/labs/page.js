// What the labs share: elements, SVG, controls with names, a question that comes first, the language.

let words = {};
export const setWords = (table) => (words = table);

/** The sentence in the page's language, with {name} filled in. */
export function t(sentence, values = {}) {
  const text = words[sentence] ?? sentence;
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** A picture of this size that grows with the page; `words` is what it says, for who can't see it. */
export const picture = (width, height, said, ...children) =>
  svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said, class: "dtk-picture" }, ...children);

let count = 0, lab = "", order = 0;

/** The controls that are made next are this lab's. */
export const setLab = (name) => { lab = name; order = 0; };

/** What is set is kept in the page's address, so that a link shows it to others. Returns {at, keep(value)}. */
function kept(values, start) {
  const name = `${lab}.${++order}`, said = new URLSearchParams(location.search).get(name);
  const keep = (value) => {
    const all = new URLSearchParams(location.search);
    all.set(name, value);
    history.replaceState(null, "", `?${all}${location.hash}`);
  };
  const found = values.map(String).indexOf(said);
  return { at: found < 0 ? values.indexOf(start) : found, keep };
}

/** A slider over a list of values; `show` writes one of them. Returns {row, value()}. */
export function slider(name, values, start, show, changed) {
  const id = `dtk-lab-${++count}`, { at, keep } = kept(values, start);
  const said = el("output", { for: id });
  const input = el("input", { id, type: "range", min: 0, max: values.length - 1, step: 1, value: at });
  const update = () => {
    said.textContent = show(values[input.value]);
    input.setAttribute("aria-valuetext", said.textContent);
  };
  input.addEventListener("input", () => { update(); keep(values[input.value]); changed(); });
  update();
  const set = (value) => { input.value = values.indexOf(value); update(); };
  return { row: el("div", { class: "dtk-control" }, el("label", { for: id }, name), input, said), value: () => values[input.value], set };
}

/** A list to choose from. options: [value, text]. */
export function choice(name, options, start, changed) {
  const id = `dtk-lab-${++count}`, { at, keep } = kept(options.map(([value]) => value), start);
  const input = el("select", { id, onchange: () => { keep(input.value); changed(); } }, ...options.map(([value, text], k) => el("option", { value, selected: k === at }, text)));
  return { row: el("div", { class: "dtk-control" }, el("label", { for: id }, name), input), value: () => input.value };
}

/** A question that is answered before the lab opens. options: texts; right: index. Calls `open(answer's own words)`. */
export function ask(question, options, right, reason, open) {
  const name = `dtk-lab-${++count}`, its = lab;
  const said = el("p", { class: "dtk-said", role: "status" });
  const form = el("form", { class: "dtk-ask" });
  const keep = el("button", { type: "submit" }, t("Keep my answer"));
  form.append(
    el("fieldset", {}, el("legend", {}, el("strong", {}, t("Predict.")), " ", question),
      ...options.map((text, k) => el("label", {}, el("input", { type: "radio", name, value: k }), " ", text))),
    keep, said);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const chosen = form.querySelector("input:checked");
    if (!chosen) { said.textContent = t("Choose one first."); return; }
    form.querySelectorAll("input").forEach((input) => (input.disabled = true));
    keep.remove();
    const as = Number(chosen.value) === right ? t("As you predicted.") : t("You said: {answer}.", { answer: options[chosen.value] });
    said.textContent = `${as} ${reason}`;
    setLab(its);
    open();
  });
  return form;
}

export const round = (value, digits = 3) => Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumSignificantDigits: digits });
