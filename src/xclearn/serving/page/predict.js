// The tab of a text: its labels, and why each of them.

import { ask, byId, dressed, latest, make, many, percent, say, signed, titleOf, wordsOf } from "./shared.js";

const SHOWN_TOKENS = 3; // in the line of a label
const LISTED_TOKENS = 12; // in its evidence; the others are one sum
const EXAMPLE_LENGTH = 60; // characters of an example's button

let answer = null; // what was answered last, to be copied
let extra = null; // a label that is scored even where it is not among the best

export const predict = latest(byId("said"), async (signal) => {
  const text = byId("text").value;
  byId("program").hidden = byId("copy").disabled = !text.trim();
  if (!text.trim()) {
    byId("found").replaceChildren();
    return say(byId("said"), "Labels appear as you type.");
  }
  const asked = { text, k: Number(byId("k").value), threshold: Number(byId("threshold").value) / 100, ...dialled() };
  showCommand(asked);
  const started = performance.now();
  answer = await ask("/predict", asked, signal);
  const took = Math.round(performance.now() - started);
  const shown = [...answer.predictions[0]];
  if (extra !== null && !shown.some(({ label }) => label === extra)) shown.push(await alone(text, extra, signal));
  show(shown);
  say(byId("said"), `${many(answer.predictions[0].length, "label")} in ${took} ms`);
  if (!shown.length) return;
  const { explanations, unknown } = await ask("/explain", { text, labels: shown.map(({ label }) => label) }, signal);
  const items = new Map([...byId("found").children].map((item) => [item.dataset.label, item]));
  const largest = Math.max(...explanations.flatMap(({ rest, tokens }) => [rest, ...tokens.map(({ part }) => part)].map(Math.abs)));
  for (const one of explanations) tell(items.get(one.label), one, text, new Set(unknown), largest);
});

/** What is asked for beside that, of models that know probabilities: which labels are given, how far rare ones are lifted. */
function dialled() {
  if (byId("dial").hidden) return {};
  const give = byId("give").value;
  const least = give === "best_f1" ? { best_f1: true } : give ? { target_precision: Number(give) } : {};
  return { ...least, tail: Number(byId("tail").value) };
}

export function showDial({ thresholds, tail }) {
  byId("dial").hidden = !thresholds || tail === null;
  byId("tail").value = tail ?? 0;
}

/** Scores a label for the text, whether it is among the best or not. */
export function scoreToo(label) {
  extra = label;
  predict();
}

/** The score of one label; a model that never considers it for this text gives none. */
async function alone(text, label, signal) {
  const { predictions } = await ask("/predict", { text, k: 1, include: [label] }, signal);
  return predictions[0][0] ?? { label, score: 0 };
}

export function offerExamples(examples) {
  byId("examples").hidden = !examples.length;
  byId("examples").replaceChildren(make("span", {}, "Try"), ...examples.map((text) => {
    const short = text.length > EXAMPLE_LENGTH ? `${text.slice(0, EXAMPLE_LENGTH - 1)}…` : text;
    const button = make("button", { type: "button", className: "example", title: text }, short);
    button.addEventListener("click", () => {
      byId("text").value = text;
      byId("text").focus();
      predict();
    });
    return button;
  }));
}

function showCommand(asked) {
  const body = JSON.stringify(asked).replaceAll("'", "'\\''");
  const token = sessionStorage.getItem("token") ? " \\\n  -H \"Authorization: Bearer $XCLEARN_TOKEN\"" : "";
  byId("command").textContent = `curl -s ${location.origin}/predict -H 'Content-Type: application/json'${token} \\\n  -d '${body}'`;
}

export async function copyAnswer() {
  const text = JSON.stringify(answer, null, 2);
  try {
    await navigator.clipboard.writeText(text);
  } catch { // only pages of this machine, or over TLS, may use it
    const field = make("textarea", { value: text });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  say(byId("said"), "Copied.");
}

function show(predictions) {
  const open = new Set([...document.querySelectorAll("#found details[open]")].map((item) => item.parentElement.dataset.label));
  byId("found").replaceChildren(...predictions.map(({ label, score }) => {
    const bar = make("i");
    bar.style.width = `${100 * score}%`;
    const line = make("summary", {},
      make("div", { className: "score" }, percent(score), make("span", { className: "bar" }, bar)),
      make("div", {}, make("div", { className: "says" }, label), make("div", { className: "chips" })));
    const item = make("li", {}, make("details", { open: open.has(label) || label === extra }, line, make("div", { className: "evidence" })));
    item.dataset.label = label;
    item.dataset.score = percent(score);
    return item;
  }));
}

const kind = (part) => (part < 0 ? "against" : "for");

/** Fills a label's item with what is known of it; `largest` is the longest bar of all labels. */
function tell(item, found, text, unknown, largest) {
  const partOf = new Map(found.tokens.map(({ token, part }) => [token, part]));
  const strongest = Math.max(...found.tokens.map(({ part }) => Math.abs(part)), 1e-9);
  const shared = wordsOf(text);
  const marked = (words) => dressed(words, (word) => (shared.has(word.toLowerCase()) ? make("mark", {}, word) : null));
  item.querySelector(".says").replaceChildren(...titleOf(found));
  item.querySelector(".chips").replaceChildren(...found.tokens.slice(0, SHOWN_TOKENS).map(({ token, part }) =>
    make("span", { className: kind(part) }, `${token} ${told(part, found)}`)));
  item.querySelector(".evidence").replaceChildren(...[
    make("h2", {}, "Why this score"),
    make("p", { className: "note" }, found.exact ? exactly(found, item.dataset.score) : roughly(found)),
    partsList(found, largest, item.dataset.score),
    ...(found.votes.length ? [make("h2", {}, "Who speaks for it"), votesTable(found.votes)] : []),
    make("h2", {}, "In the text"),
    make("p", { className: "words" }, dressed(text, (word) => inText(word, partOf.get(word.toLowerCase()), strongest, unknown, found))),
    unknown.size ? make("p", { className: "note" }, `Struck out: ${many(unknown.size, "word")} that the model does not know and did not read.`) : null,
    found.text ? make("h2", {}, "What the label says") : null,
    found.text ? make("p", {}, marked(found.text)) : null,
    found.nearest.length ? make("h2", {}, "Nearest training texts with this label") : null,
    found.nearest.length ? make("ul", { className: "nearest" }, found.nearest.map(({ text: near, cosine }) =>
      make("li", {}, marked(near), " ", make("span", { className: "name" }, `alike ${cosine.toFixed(2)}`)))) : null,
  ].filter(Boolean));
}

const exactly = ({ value }, score) => `Each word is evidence for the label (+) or against it (−), counted from where the label starts before `
  + `any word is read. The total, ${signed(value)}, is the score ${score} on an even scale: 0 is 50 %, +2.2 is 90 %, +4.6 is 99 %, −2.2 is 10 %. These parts are exact.`;

const roughly = ({ unread }) => "How many points of the score are lost when the word is left out. Words act together, so these parts need not add up to the score."
  + (unread ? ` ${many(unread, "further word was", "further words were")} not tried.` : "");

/** A part in its unit: evidence where it is exact, else points of the score. */
const told = (part, { exact }) => (exact ? signed(part) : `${signed(100 * part, 1)}`);

function inText(word, part, strongest, unknown, found) {
  if (unknown.has(word.toLowerCase())) return make("s", { title: "not read: the model does not know this word" }, word);
  if (!part) return null;
  const shown = make("span", { className: kind(part), title: told(part, found) }, word);
  shown.style.setProperty("--strength", Math.abs(part) / strongest);
  return shown;
}

/** What each source of a blend says: its place and score, its share of the blend's logit, its words. */
function votesTable(votes) {
  const cell = (text, className = "") => make("td", { className }, text);
  const head = ["source", "place", "score", "share", "words"].map((name) => make("th", {}, name));
  const rows = votes.map(({ source, place, score, share, tokens }) => make("tr", {}, make("th", { scope: "row" }, source),
    cell(place === null ? "–" : String(place), "number"), cell(score.toFixed(2), "number"), cell(signed(share), "number"),
    cell(tokens.map(({ token }) => token).join(", "))));
  return make("div", { className: "scroll" }, make("table", {}, make("tr", {}, head), rows));
}

/** Where the label starts, then the words for it, then those against it, the strongest of each first, and their total. */
function partsList(found, largest, score) {
  const { tokens, rest, value, exact, count } = found;
  const listed = tokens.length > LISTED_TOKENS + 1 ? tokens.slice(0, LISTED_TOKENS) : tokens;
  const others = tokens.slice(listed.length).reduce((sum, { part }) => sum + part, 0);
  const row = (name, part, style, said = told(part, found)) => {
    const bar = make("i", { className: part < 0 ? "minus" : "plus" });
    bar.style.width = `${Math.min(50, (50 * Math.abs(part)) / (largest || 1))}%`;
    return [make("dt", { className: style, title: name }, name), make("dd", { className: "scale" }, bar), make("dd", { className: style }, said)];
  };
  const start = exact ? `start: how rare this label is${count === null ? "" : ` (${many(count, "training text")})`}` : "start: an empty text";
  const ordered = [...listed.filter(({ part }) => part >= 0), ...listed.filter(({ part }) => part < 0)];
  const list = make("dl", { className: "parts" }, row(start, rest, "rest"), ordered.flatMap(({ token, part }) => row(token, part, "")));
  if (listed.length < tokens.length) list.append(...row(many(tokens.length - listed.length, "other word"), others, "rest"));
  if (exact) list.append(...row("total", value, "sum", `${signed(value)} = ${score}`));
  return list;
}
