// The playground: one lane per model, each with its own conversation; a stop that really stops.

import { eventsOf } from "./events.js";
import { recall, remember } from "./playground_memory.js";
import { snippets } from "./snippets.js";
import { addCalls, jsonField, showCalls } from "./tools.js";

const STARTERS = ["What is Penstock?", "What is 17 + 25?", "Sort these numbers: 7, 3, 9, 1"];
const root = document.querySelector("[data-playground]");
const field = (id) => document.getElementById(id);
const part = (parent, name) => parent.querySelector(`[data-${name}]`);
const csrf = document.querySelector("[name=csrfmiddlewaretoken]")?.value;
const lanes = [];
const jsonFields = root ? [jsonField("tools"), jsonField("schema")] : [];
let stopping = null;

function copyOf(id) {
  return field(id).content.firstElementChild.cloneNode(true);
}

function textElement(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

// Settings

function showPrices(letter) {
  const picker = root.querySelector(`[data-picker="${letter}"]`);
  const chosen = picker.querySelector("select").selectedOptions[0]?.dataset;
  if (!chosen) return;
  const pairs = [["Input", chosen.input, "ink-input"], ["Cached", chosen.cached, "ink-cached_input"],
    ["Output", chosen.output, "ink-output"]];
  part(picker, "prices").replaceChildren(...pairs.map(([label, price, ink]) => {
    const pair = document.createElement("div");
    const term = textElement("dt", label);
    term.className = ink;
    pair.append(term, textElement("dd", price));
    pair.title = `${price} per million tokens`;
    return pair;
  }));
}

function pickersChanged() {
  for (const letter of ["a", "b"]) showPrices(letter);
  for (const lane of lanes) {
    lane.element.querySelector(".lane-title").textContent = field(`model-${lane.letter}`).value;
  }
  field("max-tokens").max = field("model-a").selectedOptions[0].dataset.max;
}

function bodyFor(lane, messages) {
  const system = field("system").value.trim();
  const most = Number.parseInt(field("max-tokens").value, 10);
  return {
    model: field(`model-${lane.letter}`).value,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    temperature: Number(field("temperature").value),
    ...(most > 0 ? { max_tokens: most } : {}),
    ...Object.assign({}, ...jsonFields.map(({ check }) => check())),
  };
}

// Leads to what is wrong or waited for, if there is any; nothing is sent then.
function isHeldUp() {
  const wrong = jsonFields.find(({ check }) => !check())?.box;
  const held = wrong ?? lanes.find(({ waiting }) => waiting)?.waiting;
  if (wrong) root.querySelector(".settings-fold").open = true;
  held?.focus();
  return Boolean(held);
}

// Code

function toggleCode(button, place, body) {
  const opened = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!opened));
  place.hidden = opened;
  place.replaceChildren(...(opened ? [] : [codePanel(body())]));
}

function codePanel(body) {
  const panel = copyOf("code-panel");
  const show = (language) => {
    const code = snippets[language](root.dataset.apiBase, body);
    panel.querySelector("pre").textContent = code;
    panel.querySelector("[data-copy]").dataset.copy = code;
    for (const tab of panel.querySelectorAll("[role=tab]")) {
      tab.setAttribute("aria-selected", String(tab.dataset.language === language));
    }
  };
  panel.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) show(tab.dataset.language);
  });
  show("curl");
  return panel;
}

// Lanes and turns

function addLane(letter, messages = []) {
  const element = copyOf("lane");
  const lane = { letter, element, messages: [...messages], turns: element.querySelector(".turns") };
  part(element, "starters").append(...STARTERS.map((text) => {
    const button = textElement("button", text);
    button.type = "button";
    button.className = "btn btn-small";
    button.addEventListener("click", () => { field("prompt").value = text; send(); });
    return button;
  }));
  lanes.push(lane);
  root.querySelector("[data-lanes]").append(element);
  root.querySelector("[data-lanes]").dataset.count = lanes.length;
  return lane;
}

function addTurn(lane, id, text = "") {
  lane.element.querySelector(".talk-empty").hidden = true;
  const turn = copyOf(id);
  turn.querySelector(".turn-text").textContent = text;
  lane.turns.append(turn);
  return turn;
}

function showReceipt(turn, receipt, opened) {
  part(turn, "ttft").textContent = receipt.ttft;
  part(turn, "pace").textContent = receipt.pace;
  part(turn, "input").textContent = (receipt.input_tokens - receipt.cached_input_tokens).toLocaleString("en-US");
  part(turn, "cached").textContent = receipt.cached_input_tokens.toLocaleString("en-US");
  part(turn, "output").textContent = receipt.output_tokens.toLocaleString("en-US");
  const charge = part(turn, "charge");
  charge.textContent = receipt.charge;
  charge.title = `${receipt.charge_exact}: open the receipt`;
  charge.href = opened.receipt_url;
  part(turn, "meters").hidden = false;
}

function showFailure(turn, message, retry) {
  part(turn, "failure").hidden = false;
  part(turn, "failure-text").textContent = message;
  part(turn, "retry").addEventListener("click", retry, { once: true });
}

function isAtEnd() {
  return window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 160;
}

async function post(body, signal) {
  return fetch(root.dataset.stream, {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json", "X-CSRFToken": csrf },
    body: JSON.stringify({ ...body, project_id: field("project").value }),
  });
}

async function failureOf(response) {
  if (response.headers.get("content-type")?.includes("json")) return (await response.json()).message;
  if (response.redirected || response.status === 403) return "You were signed out. Sign in again in another tab; this chat stays.";
  return "The console did not answer. Try again in a moment.";
}

async function readAnswer(turn, response, retry) {
  const text = turn.querySelector(".turn-text");
  const said = { answer: "", calls: [] };
  let opened = {};
  try {
    for await (const { name, data } of eventsOf(response)) {
      if (name === "opened") opened = data;
      else if (name === "receipt") showReceipt(turn, data, opened);
      else if (name === "failure") showFailure(turn, data.message, retry);
      else {
        const follows = isAtEnd();
        const delta = data.choices?.[0]?.delta;
        said.answer += delta?.content ?? "";
        addCalls(said.calls, delta?.tool_calls);
        text.textContent = said.answer;
        if (follows) turn.scrollIntoView({ block: "nearest" });
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    part(turn, "stopped").hidden = false;
    part(turn, "receipt").href = opened.receipt_url;
    said.calls = [];
  }
  return said;
}

// The model waits for what its tools say.
function awaitTools(lane, turn, { answer, calls }) {
  lane.messages.push({ role: "assistant", content: answer || null, tool_calls: calls });
  lane.waiting = showCalls(part(turn, "calls"), calls, (results) => {
    lane.waiting = null;
    lane.messages.push(...results);
    run((signal) => ask(lane, signal));
  });
  turn.scrollIntoView({ block: "nearest" });
}

async function ask(lane, signal) {
  const body = bodyFor(lane, lane.messages);
  const turn = addTurn(lane, "turn-answer");
  const retry = () => { turn.remove(); run((again) => ask(lane, again)); };
  let said = { answer: "", calls: [] };
  try {
    const response = await post(body, signal);
    if (response.ok && !response.redirected) said = await readAnswer(turn, response, retry);
    else showFailure(turn, await failureOf(response), retry);
  } catch (error) {
    if (error.name !== "AbortError") showFailure(turn, "The connection was lost. Try again.", retry);
  }
  turn.removeAttribute("aria-busy");
  if (said.calls.length) awaitTools(lane, turn, said);
  else if (said.answer) lane.messages.push({ role: "assistant", content: said.answer });
  keep();
  const code = part(turn, "answer-code");
  code.hidden = false;
  code.addEventListener("click", () => toggleCode(code, part(turn, "code-place"), () => body));
}

async function run(work) {
  stopping = new AbortController();
  setBusy(true);
  await work(stopping.signal);
  stopping = null;
  setBusy(false);
}

function setBusy(busy) {
  part(root, "stop").hidden = !busy;
  part(root, "send").disabled = busy;
  document.querySelector("[data-clear]").disabled = busy;
  document.querySelector("[data-compare]").disabled = busy;
}

function send() {
  const prompt = field("prompt");
  const content = prompt.value.trim();
  if (!content || stopping || isHeldUp()) return;
  prompt.value = "";
  for (const lane of lanes) {
    lane.messages.push({ role: "user", content });
    addTurn(lane, "turn-user", content);
  }
  keep();
  run((signal) => Promise.all(lanes.map((lane) => ask(lane, signal))));
  lanes[0].turns.lastElementChild.scrollIntoView({ block: "nearest" });
}

function clear() {
  const count = lanes.length;
  for (const lane of lanes.splice(0)) lane.element.remove();
  for (let index = 0; index < count; index += 1) addLane("ab"[index]);
  pickersChanged();
  document.querySelector("[data-clear]").disabled = true;
  keep();
  field("prompt").focus();
}

function compare(button) {
  const on = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(on));
  root.querySelector('[data-picker="b"]').hidden = !on;
  if (on) addLane("b");
  else lanes.pop().element.remove();
  root.querySelector("[data-lanes]").dataset.count = lanes.length;
  pickersChanged();
}

// Memory: what was typed, chosen and said outlives a reload of this tab

const KEPT = ["prompt", "project", "model-a", "model-b", "system", "temperature", "max-tokens", "tools", "schema"];

function keep() {
  const fields = Object.fromEntries(KEPT.map((id) => [id, field(id).value]));
  remember(root.dataset.person, { fields, lanes: lanes.map(({ messages }) => messages) });
}

function restore() {
  const kept = recall(root.dataset.person);
  if (!kept) return;
  const isLink = new URLSearchParams(window.location.search).has("model");
  for (const [id, value] of Object.entries(kept.fields)) {
    if (id === "model-a" && isLink) continue;
    const before = field(id).value;
    field(id).value = value;
    // A model or a project may be gone.
    if (field(id).tagName === "SELECT" && field(id).selectedIndex < 0) field(id).value = before;
  }
  part(root, "temperature").textContent = Number(field("temperature").value).toFixed(1);
  if (kept.lanes.length > 1) compare(document.querySelector("[data-compare]"));
  lanes.forEach((lane, index) => showKept(lane, kept.lanes[index]));
  document.querySelector("[data-clear]").disabled = !lanes.some(({ messages }) => messages.length);
  pickersChanged();
  keep();
}

function showKept(lane, messages) {
  lane.messages.push(...messages);
  for (const { role, content } of messages) {
    if (role !== "user" && role !== "assistant") continue;
    const turn = addTurn(lane, `turn-${role === "user" ? "user" : "answer"}`, content ?? "");
    turn.removeAttribute("aria-busy");
  }
  if (messages.at(-1)?.role === "assistant" && !messages.at(-1).tool_calls) return;
  if (!messages.length) return;
  const turn = addTurn(lane, "turn-answer");
  turn.removeAttribute("aria-busy");
  // Calls whose results were not entered cannot be answered any more.
  if (messages.at(-1).tool_calls) lane.messages.pop();
  showFailure(turn, root.dataset.interrupted, () => { turn.remove(); run((signal) => ask(lane, signal)); });
}

function start() {
  const [first, second] = [field("model-a"), field("model-b")];
  second.append(...[...first.options].map((option) => option.cloneNode(true)));
  second.selectedIndex = Math.min(first.selectedIndex + 1, second.options.length - 1);
  addLane("a");
  pickersChanged();
  restore();
  root.addEventListener("input", keep);
  first.addEventListener("change", pickersChanged);
  second.addEventListener("change", pickersChanged);
  field("temperature").addEventListener("input", () => {
    part(root, "temperature").textContent = Number(field("temperature").value).toFixed(1);
  });
  field("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  part(root, "composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  part(root, "stop").addEventListener("click", () => stopping?.abort());
  part(root, "code").addEventListener("click", (event) => {
    const draft = field("prompt").value.trim() || "Hello!";
    toggleCode(event.currentTarget, part(root, "draft-code"),
      () => bodyFor(lanes[0], [...lanes[0].messages, { role: "user", content: draft }]));
  });
  document.querySelector("[data-clear]").addEventListener("click", clear);
  document.querySelector("[data-compare]").addEventListener("click", (event) => {
    compare(event.currentTarget);
    keep();
  });
  takeQuestions();
}

// Until here nothing could be asked: a question sent to a page that does not listen yet would be lost.
function takeQuestions() {
  field("prompt").disabled = false;
  part(root, "send").disabled = false;
  field("prompt").focus();
}

if (root) start();
