// The page as a whole: its tabs and keys, and what happens first.

import { showModel } from "./card.js";
import { searchOf } from "./labels.js";
import { copyAnswer, offerExamples, predict, scoreToo, showDial } from "./predict.js";
import { byId } from "./shared.js";

const tabs = [...document.querySelectorAll("[role=tab]")];

const search = searchOf((label) => {
  chosen(byId("tab-predict"));
  byId("text").focus();
  scoreToo(label);
});

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

/** The arrow keys go from line to line, and from the first back to the field above. */
function moveInLists(event) {
  const field = event.target.closest("#labels") ? "query" : "text";
  const list = field === "query" ? "#matches" : "#found";
  if (!event.target.closest(list)) return;
  event.preventDefault();
  moveBetween([byId(field), ...document.querySelectorAll(`${list} summary`)], event.key === "ArrowUp" ? -1 : 1);
}

document.addEventListener("keydown", (event) => {
  const target = event.target;
  if (target.role === "tab" && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
    const next = moveBetween(tabs, event.key === "ArrowLeft" ? -1 : 1);
    if (next) chosen(next);
  } else if (target.tagName === "SUMMARY" && ["ArrowUp", "ArrowDown"].includes(event.key)) {
    moveInLists(event);
  } else if (target.id === "query" && event.key === "ArrowDown") {
    event.preventDefault();
    document.querySelector("#matches summary")?.focus();
  } else if (event.key === "/" && !["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName)) {
    event.preventDefault();
    chosen(byId("tab-predict"));
    byId("text").focus();
  }
});

for (const tab of tabs) tab.addEventListener("click", () => chosen(tab));
byId("text").addEventListener("input", predict);
for (const id of ["k", "give", "tail"]) byId(id).addEventListener("change", predict);
byId("threshold").addEventListener("input", () => {
  byId("from").textContent = `${byId("threshold").value} %`;
  predict();
});
byId("copy").addEventListener("click", copyAnswer);
byId("query").addEventListener("input", search);
byId("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token-value").value.trim());
  start();
});

function start() {
  showModel().then((said) => {
    offerExamples(said.examples);
    showDial(said);
  }).catch((error) => { byId("served").textContent = error.message; });
  predict();
  choose(tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash) ?? tabs[0]);
  byId("text").focus();
}

start();
