// The tab of the model: what it is for, what it learnt from, how right it is; the rest is folded.

import { ask, byId, count, fold, make, many, wide } from "./shared.js";

const METRICS = {
  P: "of the first k labels of a text, how many are right",
  nDCG: "the same, but a right label counts more the earlier it comes; 100 is a perfect order",
  PSP: "P with rare labels counting more, and pairs that nobody marked allowed for; 100 is the best that is possible",
  PSnDCG: "nDCG with rare labels counting more",
  R: "of the right labels of a text, how many are among the first k",
  C: "of all labels that are right for some text, how many are found for at least one of them",
};

const TILES = [
  ["P@1", "of the labels in first place are right"],
  ["P@5", "of the first five labels are right"],
  ["R@10", "of a text's right labels are among the first ten"],
];

const UNITS = { seconds: "s", timeout: "s", header_timeout: "s", body_timeout: "s", idle_timeout: "s", max_wait: "s", max_characters: "characters" };
const BYTES = new Set(["max_body", "max_bodies"]);

export async function showModel() {
  const facts = await ask("/model");
  const { about, n_labels: labels } = facts;
  const served = [about.algorithm, about.data?.name].filter(Boolean).join(" on ");
  byId("served").textContent = `${served || "model"} · ${many(labels, "label")}`;
  byId("model").replaceChildren(
    make("h2", {}, "What it is for"),
    make("p", { className: "lead" }, about.purpose || `Naming the labels that fit a text, out of ${count(labels)}.`),
    ...learntFrom(about.data),
    ...Object.entries(about.metrics ?? {}).flatMap(([split, values]) => accuracy(split, values, about)),
    ...details(facts),
  );
  return facts;
}

/** A sentence on the data. */
function learntFrom(data) {
  if (!data?.train) return [];
  const { train, labels } = data;
  const parts = [`Learnt from ${many(train.documents, "text")}${data.name ? ` of ${data.name}` : ""}, with ${train.labels_per_document.toFixed(1)} labels each on average.`];
  if (labels?.fewer_than_5_documents !== undefined) {
    parts.push(`${count(labels.fewer_than_5_documents)} of the labels have fewer than five texts to learn from.`);
  }
  return [make("p", {}, parts.join(" "))];
}

function accuracy(split, values, about) {
  const texts = about.data?.[split]?.documents;
  const tiles = TILES.filter(([name]) => typeof values[name] === "number");
  return [
    make("h2", {}, `How right it is${texts ? `: on ${many(texts, "text")} of ${split}` : ` on ${split}`}`),
    make("ul", { className: "tiles" }, tiles.map(([name, words]) =>
      make("li", {}, make("strong", {}, `${values[name].toFixed(1)} %`), make("span", {}, `${words} (${name})`)))),
    ...binPlots(split, about.bins?.[split]),
    fold(`All figures on ${split}, in percent`, make("div", { className: "beside" }, metricTables(split, values)), glossary(values)),
  ];
}

function details({ about, version, loaded, limits }) {
  const served = { algorithm: about.algorithm, version, loaded: new Date(loaded).toLocaleString(), xclearn: about.xclearn };
  return [
    fold("Served now", factsTable("Served now", served)),
    ...(about.data ? [fold("Data", factsTable("Data", flat(about.data)))] : []),
    ...(about.settings ? [fold("Settings", settingsTable(flat(about.settings), flat(about.resolved ?? {})))] : []),
    ...(about.training ? [fold("Training", factsTable("Training", flat(about.training)))] : []),
    fold("What this server allows", factsTable("What this server allows", limits)),
  ];
}

/** Nested values as one level: {a: {b: 1}} → {"a b": 1}. */
function flat(values, prefix = "") {
  return Object.assign({}, ...Object.entries(values).map(([name, value]) =>
    value && typeof value === "object" && !Array.isArray(value) ? flat(value, `${prefix}${name} `) : { [prefix + name]: value }));
}

/** A setting that was left to training is null, and has its value among those chosen; any other null is a part left out. */
function settingsTable(settings, resolved) {
  const rows = Object.entries(settings).map(([name, value]) =>
    [name, value === null && resolved[name] != null ? `${plain(resolved[name])}, chosen by training` : value === null ? "none" : plain(value)]);
  const added = Object.entries(resolved).filter(([name, value]) => !(name in settings) && value !== null);
  return tableOf("Settings", [...rows, ...added.map(([name, value]) => [name, `${plain(value)}, chosen by training`])]);
}

const factsTable = (title, facts) => tableOf(title, Object.entries(facts).filter(([, value]) => value != null).map(([name, value]) => [name, withUnit(name, value)]));

const tableOf = (title, rows) => wide(title, make("table", {}, make("tbody", {}, rows.map(([name, value]) =>
  make("tr", {}, make("th", { scope: "row" }, name.replaceAll("_", " ")), make("td", {}, value))))));

function plain(value) {
  if (typeof value === "number") return count(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return Array.isArray(value) ? value.join(", ") || "none" : String(value);
}

function withUnit(name, value) {
  if (BYTES.has(name)) return value >= 1 << 20 ? `${count(value / (1 << 20))} MiB` : many(value, "byte");
  return UNITS[name] ? `${plain(value)} ${UNITS[name]}` : plain(value);
}

/** Metrics named `P@5` as tables: a row a metric, a column a depth. */
function metricTables(split, values) {
  const rows = new Map();
  for (const [name, value] of Object.entries(values)) {
    const [metric, depth] = name.split("@");
    rows.set(metric, { ...rows.get(metric), [depth ?? ""]: value });
  }
  const groups = Map.groupBy(rows.keys(), (metric) => Object.keys(rows.get(metric)).join());
  const number = (tag, text, scope) => Object.assign(make(tag, { className: "number" }, text), scope ? { scope } : {});
  return [...groups].map(([depths, metrics]) => {
    const columns = depths.split(",");
    const title = `${[...metrics].join(", ")} on ${split}`;
    return wide(title, make("table", {},
      make("thead", {}, make("tr", {}, make("td"), columns.map((depth) => number("th", depth ? `@${depth}` : "value", "col")))),
      make("tbody", {}, metrics.map((metric) => make("tr", {}, make("th", { scope: "row" }, metric),
        columns.map((depth) => number("td", rows.get(metric)[depth]?.toFixed(2) ?? "–")))))));
  });
}

function glossary(values) {
  const there = new Set(Object.keys(values).map((name) => name.split("@")[0]));
  return make("dl", { className: "glossary" }, Object.entries(METRICS).filter(([name]) => there.has(name)).flatMap(([name, words]) =>
    [make("dt", {}, `${name}@k`), make("dd", {}, words)]));
}

/** The bins of labels, from the most to the least frequent: what each adds to P@5, and its recall. */
function binPlots(split, bins) {
  if (!bins) return [];
  return [
    make("h3", {}, "By how frequent a label is"),
    make("p", { className: "note" }, "Labels in groups with as many training texts each, frequent labels left, rare ones right. Below a bar: training texts of a label, and how many labels are in the group."),
    make("div", { className: "beside" },
      barPlot("Right labels found among the first five (R@5), percent", bins, (bin) => bin.recall),
      barPlot("Share in P@5, percentage points", bins, (bin) => bin.contribution)),
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
