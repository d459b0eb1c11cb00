// The tab of the labels: a search, and what each label is.

import { ask, byId, count, latest, make, many, say, titleOf } from "./shared.js";

const LISTED = 50;
const NEAR = 10;
const COUNTED = 100000; // places that the server looks at

/** The search; `score(label)` is called when a label is to be scored for the text. */
export function searchOf(score) {
  const search = latest(byId("counted"), async (signal) => {
    const query = byId("query").value;
    const { labels, total } = await ask(`/labels?limit=${LISTED}&q=${encodeURIComponent(query)}`, undefined, signal);
    byId("matches").replaceChildren(...labels.map((one) => matched(one, score, search)));
    say(byId("counted"), found(labels.length, total, query.trim()));
  });
  return search;
}

function found(shown, total, query) {
  if (!total) return "No label holds this.";
  const all = query && total >= COUNTED ? `more than ${count(COUNTED)} labels` : many(total, "label");
  return shown < total ? `The first ${count(shown)} of ${all}` : all;
}

function matched(one, score, search) {
  const told = make("div", { className: "evidence" });
  const frequency = one.count === null ? null : make("span", { className: "name" }, many(one.count, "training text"));
  const details = make("details", {}, make("summary", {}, make("div", {}, titleOf(one)), make("div", {}, frequency)), told);
  details.addEventListener("toggle", () => {
    if (details.open && !told.childElementCount) tellMore(told, one, score, search);
  });
  return make("li", {}, details);
}

async function tellMore(told, { label }, score, search) {
  const button = make("button", { type: "button" }, "Score it for the text");
  button.addEventListener("click", () => score(label));
  told.append(make("p", {}, button), make("h2", {}, "Nearest labels"));
  try {
    const { labels } = await ask(`/labels?limit=${NEAR}&near=${encodeURIComponent(label)}`);
    told.append(labels.length
      ? make("ul", { className: "near" }, labels.map((one) => make("li", {}, toSearch(one, search))))
      : make("p", { className: "note" }, "This kind of model does not say which labels are alike."));
  } catch (error) {
    told.append(make("p", { className: "note" }, error.message));
  }
}

function toSearch(one, search) {
  const button = make("button", { type: "button", className: "link" }, titleOf(one));
  button.addEventListener("click", () => {
    byId("query").value = one.label;
    byId("query").focus();
    search();
  });
  return button;
}
