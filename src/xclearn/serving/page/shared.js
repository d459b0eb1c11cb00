// What all parts of the page use: elements, questions to the server, numbers. Everything shown is set as text, never as HTML.

const PAUSE = 120; // milliseconds without a key before the server is asked
const WORDS = /[\p{L}\p{N}\p{M}_]+/gu;

export const byId = (id) => document.getElementById(id);

/** An element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}

/** Details that are closed until asked for. */
export const fold = (title, ...children) => make("details", { className: "fold" }, make("summary", {}, title), ...children);

/** What may be wider than a phone scrolls by itself, also with the keyboard. */
export function wide(name, ...children) {
  const region = make("div", { className: "scroll", tabIndex: 0, role: "region" }, ...children);
  region.setAttribute("aria-label", name);
  return region;
}

export async function ask(path, body, signal) {
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
export function latest(status, work) {
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

export function say(status, message, wrong = false) {
  status.textContent = message;
  status.classList.toggle("wrong", wrong);
}

export const count = (number) => number.toLocaleString("en-GB");
export const many = (number, one, several = `${one}s`) => `${count(number)} ${number === 1 ? one : several}`;
export const signed = (number, digits = 2) => (number < 0 ? "−" : "+") + Math.abs(number).toFixed(digits);

/** A score as at most seven characters: 41.7 %, 0.12 %, 0.003 %. */
export function percent(score) {
  if (score < 1e-5) return "≈ 0 %";
  if (score >= 0.001) return `${(100 * score).toFixed(score >= 0.9995 ? 0 : 1)} %`;
  return `${(100 * score).toPrecision(1)} %`;
}

export const wordsOf = (text) => new Set((text.toLowerCase().match(WORDS) ?? []));

/** The text again, with `dress(word)` in place of each of its words. */
export function dressed(text, dress) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(WORDS)) {
    parts.push(text.slice(end, match.index), dress(match[0]) ?? match[0]);
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

/** What a label says, and its name beside it where that is something else. */
export function titleOf({ label, text }) {
  return text && text !== label ? [text, " ", make("span", { className: "name" }, label)] : [label];
}
