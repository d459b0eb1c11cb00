// The page's behaviour: ask the server, show what it says. Everything shown is set as text, never as HTML.

const byId = (id) => document.getElementById(id);
const PAUSE = 120; // milliseconds without a key before the server is asked
const SHOWN_TOKENS = 3; // in the line of a label
const LISTED_TOKENS = 12; // in its evidence; the others are one sum
const WORDS = /[\p{L}\p{N}\p{M}_]+/gu;

/** An element with properties and children. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}

// Asking

async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = body === undefined ? { headers, signal } : { method: "POST", body: JSON.stringify(body), headers, signal };
  const reply = await fetch(path, options);
  const content = await reply.json();
  byId("token").hidden = reply.status !== 401;
  if (!reply.ok) throw new Error(content.error);
  return content;
}

/** Calls `work(signal)` a moment after the last call; a newer call cancels an older one. */
function latest(status, work) {
  let timer, control;
  return () => {
    clearTimeout(timer);
    control?.abort();
    timer = setTimeout(async () => {
      control = new AbortController();
      try {
        await work(control.signal);
      } catch (error) {
        if (error.name === "AbortError") return;
        say(status, error instanceof TypeError ? "The server does not answer." : error.message, true);
      }
    }, PAUSE);
  };
}

function say(status, message, wrong = false) {
  status.textContent = message;
  status.classList.toggle("wrong", wrong);
}

// Numbers and words

const percent = (score) => (score < 1e-5 ? "< 0.001 %" : `${(100 * score).toPrecision(score < 0.1 ? 2 : 3)} %`);
const count = (number) => number.toLocaleString("en-GB");
const signed = (number) => (number < 0 ? "−" : "+") + Math.abs(number).toFixed(2);
const wordsOf = (text) => new Set((text.toLowerCase().match(WORDS) ?? []));

/** The text again, with `dress(word)` in place of each of its words. */
function dressed(text, dress) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(WORDS)) {
    parts.push(text.slice(end, match.index), dress(match[0]) ?? match[0]);
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

// Predicting

const predict = latest(byId("said"), async (signal) => {
  const text = byId("text").value;
  if (!text.trim()) {
    byId("found").replaceChildren();
    return say(byId("said"), "Labels appear as you type.");
  }
  const started = performance.now();
  const { predictions } = await ask("/predict", { text, k: Number(byId("k").value), ...dialled() }, signal);
  const took = Math.round(performance.now() - started);
  show(predictions[0]);
  say(byId("said"), `${predictions[0].length} labels in ${took} ms`);
  const { explanations } = await ask("/explain", { text, labels: predictions[0].map((one) => one.label) }, signal);
  const items = new Map([...byId("found").children].map((item) => [item.dataset.label, item]));
  for (const one of explanations) tell(items.get(one.label), one, text);
});

// The dial: which labels are given, and how much rare ones are lifted; of models that know probabilities

/** What is asked for beside the text, as the server names it. */
function dialled() {
  if (byId("dial").hidden) return {};
  const give = byId("give").value;
  const threshold = give === "best_f1" ? { best_f1: true } : give ? { target_precision: Number(give) } : {};
  return { ...threshold, tail: Number(byId("tail").value) };
}

function showDial({ thresholds, tail }) {
  byId("dial").hidden = !thresholds || tail === null;
  byId("tail").value = tail ?? 0;
}

function show(predictions) {
  const open = new Set([...document.querySelectorAll("#found details[open]")].map((item) => item.parentElement.dataset.label));
  const best = Math.max(...predictions.map(({ score }) => score), 1e-9);
  byId("found").replaceChildren(...predictions.map(({ label, score }) => {
    const bar = make("i");
    bar.style.width = `${(100 * score) / best}%`;
    const line = make("summary", {},
      make("div", { className: "score" }, percent(score), make("span", { className: "bar" }, bar)),
      make("div", {}, make("div", { className: "says" }, label), make("div", { className: "chips" })));
    const item = make("li", {}, make("details", { open: open.has(label) }, line, make("div", { className: "evidence" })));
    item.dataset.label = label;
    item.dataset.score = percent(score);
    return item;
  }));
}

/** Fills a label's item with what is known of it. */
function tell(item, found, text) {
  if (found.text && found.text !== found.label) {
    item.querySelector(".says").replaceChildren(found.text, " ", make("span", { className: "name" }, found.label));
  }
  const kind = (part) => (part < 0 ? "against" : "for");
  item.querySelector(".chips").replaceChildren(...found.tokens.slice(0, SHOWN_TOKENS).map(({ token, part }) =>
    make("span", { className: kind(part) }, `${token} ${signed(part)}`)));
  const partOf = new Map(found.tokens.map(({ token, part }) => [token, part]));
  const largest = Math.abs(found.tokens[0]?.part);
  const shared = wordsOf(text);
  item.querySelector(".evidence").replaceChildren(...[
    make("h3", {}, "What each word adds"),
    make("p", { className: "note" }, found.exact
      ? `Exact: the parts and the bias sum to the logit, and the score ${item.dataset.score} is its logistic.`
      : `Approximate: the score that is lost when the word is left out.${found.unread ? ` ${found.unread} further words were not tried.` : ""}`),
    partsList(found),
    make("h3", {}, "In the text"),
    make("p", { className: "words" }, dressed(text, (word) => {
      const part = partOf.get(word.toLowerCase());
      if (!part) return null;
      const shown = make("span", { className: kind(part), title: signed(part) }, word);
      shown.style.setProperty("--strength", Math.abs(part) / largest);
      return shown;
    })),
    found.text ? make("h3", {}, "What the label says") : null,
    found.text ? make("p", {}, dressed(found.text, (word) => (shared.has(word.toLowerCase()) ? make("mark", {}, word) : null))) : null,
    found.nearest.length ? make("h3", {}, "Nearest training texts with this label") : null,
    found.nearest.length ? make("ul", { className: "nearest" }, found.nearest.map(({ text: near, cosine }) =>
      make("li", {}, dressed(near, (word) => (shared.has(word.toLowerCase()) ? make("mark", {}, word) : null)), " ",
        make("span", { className: "name" }, cosine.toFixed(2))))) : null,
  ].filter(Boolean));
}

function partsList({ tokens, rest, value, exact }) {
  const listed = tokens.length > LISTED_TOKENS + 1 ? tokens.slice(0, LISTED_TOKENS) : tokens;
  const others = tokens.slice(listed.length).reduce((sum, { part }) => sum + part, 0);
  const largest = Math.max(...listed.map(({ part }) => Math.abs(part)), 1e-9);
  const row = (name, part, style, width) => {
    const bar = make("i", { className: part < 0 ? "minus" : "plus" });
    bar.style.width = `${width}%`;
    return [make("dt", { className: style, title: name }, name), make("dd", { className: "scale" }, bar), make("dd", { className: style }, signed(part))];
  };
  const list = make("dl", { className: "parts" }, listed.flatMap(({ token, part }) => row(token, part, "", (50 * Math.abs(part)) / largest)));
  if (listed.length < tokens.length) list.append(...row(`${tokens.length - listed.length} other words`, others, "rest", 0));
  if (exact) list.append(...row("bias", rest, "rest", 0), ...row("logit", value, "sum", 0));
  return list;
}

// Searching labels

const search = latest(byId("counted"), async (signal) => {
  const { labels, more } = await ask(`/labels?limit=50&q=${encodeURIComponent(byId("query").value)}`, undefined, signal);
  byId("matches").replaceChildren(...labels.map(({ label, text }) =>
    make("li", {}, text && text !== label ? `${text} ` : "", make("span", { className: text && text !== label ? "name" : "" }, label))));
  say(byId("counted"), labels.length ? `${more ? "The first " : ""}${count(labels.length)} labels` : "No label holds this.");
});

// The model

async function showModel() {
  const said = await ask("/model");
  const { about, n_labels: labels, version, loaded, limits } = said;
  showDial(said);
  const served = [about.algorithm, about.data?.name].filter(Boolean).join(" on ");
  byId("served").textContent = `${served || "model"} · ${count(labels)} labels`;
  const facts = { algorithm: about.algorithm, data: about.data?.name, labels, version, loaded: new Date(loaded).toLocaleString(), xclearn: about.xclearn };
  byId("model").replaceChildren(
    make("h2", {}, "Served now"), factsTable(facts),
    ...Object.entries(about.metrics ?? {}).flatMap(([split, values]) => metricTables(split, values)),
    ...Object.entries(about.bins ?? {}).flatMap(([split, bins]) => binPlots(split, bins)),
    ...["data", "settings", "resolved", "training"].filter((part) => about[part]).flatMap((part) => [
      make("h2", {}, { data: "Data", settings: "Settings", resolved: "Chosen from the data", training: "Training" }[part]),
      factsTable(flat(about[part])),
    ]),
    make("h2", {}, "What this server allows"), factsTable(limits),
    make("p", {}, make("a", { href: "/openapi.json" }, "The interface as OpenAPI")),
  );
}

/** Nested values as one level: {a: {b: 1}} → {"a b": 1}. */
function flat(values, prefix = "") {
  return Object.assign({}, ...Object.entries(values).map(([name, value]) =>
    value && typeof value === "object" && !Array.isArray(value) ? flat(value, `${prefix}${name} `) : { [prefix + name]: value }));
}

function factsTable(facts) {
  const cell = (value) => (typeof value === "number" ? count(value) : value === null ? "automatic" : Array.isArray(value) ? value.join(", ") : String(value));
  const rows = Object.entries(facts).filter(([, value]) => value !== undefined);
  return make("div", { className: "scroll" }, make("table", {}, rows.map(([name, value]) =>
    make("tr", {}, make("th", { scope: "row" }, name.replaceAll("_", " ")), make("td", {}, cell(value))))));
}

/** Metrics named `P@5` as tables: a row a metric, a column a depth. */
function metricTables(split, values) {
  const rows = new Map();
  for (const [name, value] of Object.entries(values)) {
    const [metric, depth] = name.split("@");
    rows.set(metric, { ...rows.get(metric), [depth ?? ""]: value });
  }
  const depthsOf = (metric) => Object.keys(rows.get(metric)).join();
  const groups = Map.groupBy(rows.keys(), depthsOf);
  const tables = [...groups].map(([depths, metrics]) => {
    const columns = depths.split(",");
    const number = (tag, text) => make(tag, { className: "number" }, text);
    return make("div", { className: "scroll" }, make("table", {},
      make("tr", {}, make("th"), columns.map((depth) => number("th", depth ? `@${depth}` : ""))),
      metrics.map((metric) => make("tr", {}, make("th", { scope: "row" }, metric),
        columns.map((depth) => number("td", rows.get(metric)[depth]?.toFixed(2) ?? "–"))))));
  });
  return [make("h2", {}, `Accuracy on ${split}, in percent`), make("div", { className: "beside" }, tables)];
}

/** The bins of labels, from the most to the least frequent: what each adds to P@5, and its recall. */
function binPlots(split, bins) {
  return [
    make("h2", {}, `By label frequency on ${split}`),
    make("p", { className: "note" }, "Labels in bins of equal training volume. Below a bar: training documents of a label, and how many labels."),
    make("div", { className: "beside" },
      barPlot("Adds to P@5, percentage points", bins, (bin) => bin.contribution),
      barPlot("Recall@5, percent", bins, (bin) => bin.recall)),
  ];
}

function barPlot(title, bins, valueOf) {
  const drawn = (tag, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const width = 78, height = 120, largest = Math.max(...bins.map(valueOf), 1e-9);
  const columns = bins.flatMap((bin, i) => {
    const tall = (height * valueOf(bin)) / largest;
    const line = (y, text, style) => drawn("text", { class: style, x: (i + 0.5) * width, y, "text-anchor": "middle" }, text);
    const range = bin.highest_count === bin.lowest_count ? count(bin.highest_count) : `${count(bin.highest_count)}–${count(bin.lowest_count)}`;
    return [drawn("rect", { x: i * width + 15, y: 20 + height - tall, width: width - 30, height: tall, rx: 2 }),
      line(14 + height - tall, valueOf(bin).toFixed(1), ""), line(height + 38, range, "axis"), line(height + 54, count(bin.n_labels), "axis")];
  });
  const size = { viewBox: `0 0 ${width * bins.length} ${height + 60}`, role: "img", "aria-label": title };
  return make("figure", {}, make("figcaption", {}, title), drawn("svg", size, ...columns));
}

// Tabs and keys

const tabs = [...document.querySelectorAll("[role=tab]")];

function choose(tab) {
  for (const one of tabs) {
    one.setAttribute("aria-selected", one === tab);
    one.tabIndex = one === tab ? 0 : -1;
    byId(one.getAttribute("aria-controls")).hidden = one !== tab;
  }
  if (tab.id === "tab-labels") search();
}

/** What a person chose is in the address, so that it can be kept or sent. */
function chosen(tab) {
  choose(tab);
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
}

function moveBetween(elements, step) {
  const next = elements[elements.indexOf(document.activeElement) + step];
  next?.focus();
  return next;
}

document.addEventListener("keydown", (event) => {
  const target = event.target;
  if (target.role === "tab" && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
    const next = moveBetween(tabs, event.key === "ArrowLeft" ? -1 : 1);
    if (next) chosen(next);
  } else if (target.tagName === "SUMMARY" && ["ArrowUp", "ArrowDown"].includes(event.key)) {
    event.preventDefault();
    moveBetween([byId("text"), ...document.querySelectorAll("#found summary")], event.key === "ArrowUp" ? -1 : 1);
  } else if (event.key === "/" && !["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName)) {
    event.preventDefault();
    chosen(byId("tab-predict"));
    byId("text").focus();
  }
});

for (const tab of tabs) tab.addEventListener("click", () => chosen(tab));
byId("text").addEventListener("input", predict);
for (const id of ["k", "give", "tail"]) byId(id).addEventListener("change", predict);
byId("query").addEventListener("input", search);
byId("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token-value").value.trim());
  start();
});

function start() {
  showModel().catch((error) => { byId("served").textContent = error.message; });
  predict();
  choose(tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash) ?? tabs[0]);
  byId("text").focus();
}

start();
