// The page: which view is shown, and when it is loaded again.

import { ask, Refused } from "./api.js";
import { draw, h, visible } from "./dom.js";
import { action } from "./confirm.js";
import { clients } from "./clients.js";
import { letters } from "./letters.js";
import { live, slow } from "./live.js";
import { topic } from "./topic.js";
import { count, duration } from "./words.js";

const POLL_MS = 1000;
const VIEWS = { "": live, slow, letters, clients, topic };
const place = (id) => document.getElementById(id);

let state = null; // the newest answer of `api/head`
let route = read();
let shown = 0; // the number of the look that is shown
let loading = 0; // numbers the loads, so that a late one is dropped
let loaded = null; // what the view has loaded last; null: it has nothing yet
let refused = ""; // why it could not be loaded since; it is loaded again with the next look

/** `#/topic/NAME?at=newest 50`: the view, its names, its parameters. */
function read() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...names] = path.split("/").map(decoded);
  return { view: view in VIEWS ? view : "", names, said: Object.fromEntries(new URLSearchParams(query)) };
}

/** A part of an address; one that was mistyped stands as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a view. */
export function address(view, names = [], said = {}) {
  const query = new URLSearchParams(said).toString();
  return `#/${[view, ...names].map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

/** Stay in this view with other parameters, which its address holds. */
export function refine(said) {
  const chosen = Object.entries({ ...route.said, ...said }).filter(([, value]) => value !== "");
  history.replaceState(null, "", address(route.view, route.names, Object.fromEntries(chosen)));
  route = read();
  return load();
}

/** Load the view that is shown, and draw it. */
export async function load() {
  const number = ++loading;
  const asked = route;
  let found = null;
  let why = "";
  try {
    found = await VIEWS[asked.view].load(asked);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    why = error.message;
  }
  if (number !== loading) return;
  loaded = found ?? loaded; // what was seen stays, and what a person has typed
  refused = why;
  redraw();
}

/** Draw what is loaded: after a choice that needs nothing else. */
export function redraw() {
  if (!loaded && !refused) return; // another view is being loaded
  const view = VIEWS[route.view];
  const why = h("div", {}, refused ? h("p", { class: "refused", role: "alert" }, refused) : null);
  const drawn = loaded ? view.draw(loaded, route) : h("h1", {}, view.title(route));
  draw(place("main"), h("div", { key: `${route.view}/${route.names.join("/")}`, class: "view" }, why, drawn));
  nameCells();
  document.title = visible(`${view.title(route)} · reliable-pubsub`);
}

/** Give each cell the name of its column, which a narrow screen shows beside it. */
function nameCells() {
  for (const table of place("main").querySelectorAll("table")) {
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, n) => (cell.dataset.name = names[n]));
  }
}

async function poll() {
  try {
    state = await ask("head");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    state = { ...state, refused: error.message };
  }
  header();
  banner();
  if (!state.refused && state.number !== shown && (refused || VIEWS[route.view].follows(route))) {
    shown = state.number;
    await load();
  }
}

async function run() {
  for (;;) {
    await poll();
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

function header() {
  const head = state.head;
  const link = (view, text, badge, tone) =>
    h("a", { href: address(view), "aria-current": route.view === view ? "page" : false }, text,
      badge ? h("span", { class: `badge ${tone}` }, count(badge)) : null);
  const away = state.refused || state.error;
  draw(place("header"),
    h("div", { class: "brand" }, h("strong", {}, "reliable-pubsub"), h("span", { class: "quiet" }, "console")),
    h("nav", { "aria-label": "Views" },
      link("", "Live"), link("slow", "Who is slow", head?.slow, "warn"),
      link("letters", "Dead letters", head?.dead_letters, "bad"), link("clients", "Clients")),
    h("div", { class: "state" },
      h("span", { class: `dot ${away ? "bad" : head?.paused != null ? "warn" : "good"}` }),
      h("span", {}, away ? "no answer" : !head ? "connecting" : head.paused != null ? "puts are paused" : "connected"),
      h("span", { class: "quiet endpoint" }, state.endpoint ?? ""),
      head && !away ? pausing(head) : null));
}

function pausing(head) {
  const isPaused = head.paused !== null;
  const asked = { action: isPaused ? "resume" : "pause" };
  const title = isPaused ? "Resume puts" : "Pause puts";
  return h("button", { on: { click: () => action(title, asked, isPaused ? null : ["reason", "Reason, shown to publishers"]) } },
    isPaused ? "Resume …" : "Pause …");
}

function banner() {
  const lines = [];
  if (state.refused) lines.push(["bad", state.refused]);
  else if (state.error) {
    const age = state.age_s === null ? "Nothing was seen of it yet." : `What is shown was seen ${duration(state.age_s)} ago.`;
    lines.push(["bad", `The proxy does not answer, or refuses: ${state.error} ${age} The page goes on when it answers.`]);
  } else if (state.head) {
    if (state.head.paused !== null) {
      lines.push(["warn", `Puts are paused${state.head.paused ? `: ${state.head.paused}` : ""}. Publishers wait; gets continue.`]);
    }
    for (const warning of state.head.warnings) lines.push(["bad", warning]);
  }
  draw(place("banner"), lines.map(([tone, text]) => h("p", { class: tone }, text)));
}

/** What every view may need of the newest look. */
export const head = () => state?.head ?? null;

addEventListener("hashchange", async () => {
  if (location.hash === "#main") return;
  const before = route;
  route = read();
  loaded = null;
  refused = "";
  if (state) header();
  await load();
  if (before.view !== route.view || before.names.join() !== route.names.join()) {
    scrollTo(0, 0);
    place("main").focus({ preventScroll: true });
  }
});

await run();
