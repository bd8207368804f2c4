// Messages of a topic by offset, time or key, and one of them: its story, headers and payload.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { address, redraw } from "./main.js";
import { count, counted, moment, size } from "./words.js";

const NEWEST = "newest 50";
const FORMS = { text: "Text", json: "JSON", hex: "Bytes" };
const WAYS = {
  newest: ["Newest", "50"], offset: ["From offset", "42"], time: ["From time", "2026-11-21T08:00:00Z"],
  age: ["From age", "1h"], earliest: ["Earliest", ""],
};

let form = null; // of the payload that is shown; null: the one that fits it best
let typed = null; // the way that is chosen, before it is gone

/** Whether the list changes by itself: what was asked for by place stays as it is. */
export const follows = ({ said }) => (said.at ?? NEWEST).startsWith("newest") && !said.key;

export async function loadMessages({ names: [topic], said }) {
  const [listed, opened] = await Promise.all([
    ask("messages", { topic, at: said.at ?? NEWEST, key: said.key ?? "" }),
    said.open === undefined ? null : ask("message", { topic, offset: said.open }),
  ]);
  return { listed, opened };
}

export function messages({ listed, opened }, route) {
  return [
    finding(route),
    h("div", { class: opened ? "split" : false },
      h("div", {}, list(listed, route), further(listed, route)),
      opened ? one(opened, route) : null),
  ];
}

function finding({ names: [topic], said }) {
  const [word, ...rest] = (said.at ?? NEWEST).split(" ");
  const way = typed ?? (word in WAYS ? word : "offset");
  const submit = (event) => {
    event.preventDefault();
    const fields = new FormData(event.target);
    const value = (fields.get("value") ?? "").trim() || WAYS[way][1];
    const found = { at: `${way} ${value}`.trim() };
    if (fields.get("key")) found.key = fields.get("key");
    typed = null;
    location.hash = address("topic", [topic], found);
  };
  return h("form", { class: "tools finding", "aria-label": "Find messages", on: { submit } },
    h("label", {}, h("span", {}, "Show"),
      h("select", { name: "way", value: way, on: { change: (e) => ((typed = e.target.value), redraw()) } },
        Object.entries(WAYS).map(([value, [text]]) => h("option", { value }, text)))),
    way === "earliest" ? null : h("label", { key: way }, h("span", { class: "unshown" }, "Value"),
      h("input", { name: "value", value: word === way ? rest.join(" ") : "", placeholder: WAYS[way][1], autocomplete: "off" })),
    h("label", { key: "key" }, h("span", {}, "Key"),
      h("input", { name: "key", value: said.key ?? "", placeholder: "any, or text, or 0x hex", autocomplete: "off" })),
    h("button", { key: "go", type: "submit", class: "main" }, "Show"));
}

function list({ rows: all }, { names: [topic], said }) {
  const rows = follows({ said }) ? [...all].reverse() : all; // the newest first, where they come in
  if (!rows.length) return h("p", { class: "empty" }, said.key ? "No message with this key in what was searched." : "Nothing is stored here.");
  const shown = (row) => address("topic", [topic], { ...said, open: row.offset });
  return h("div", { class: "table" }, h("table", { "aria-label": "Messages", class: "messages" },
    h("thead", {}, h("tr", {}, ["Offset", "Stored", "Message id", "Key", "Size", "Payload"].map((name, n) =>
      h("th", { scope: "col", class: n === 0 || n === 4 ? "number" : false }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", { key: row.offset, class: String(row.offset) === said.open ? "chosen" : false },
      h("th", { scope: "row", class: "number" }, h("a", { href: shown(row), "aria-label": `Message at offset ${row.offset}`, "aria-current": String(row.offset) === said.open ? "true" : false }, count(row.offset))),
      h("td", { class: "time" }, moment(row.timestamp_ns)),
      h("td", { class: "name" }, row.message_id),
      h("td", { class: "name" }, row.key ?? ""),
      h("td", { class: "number" }, size(row.size)),
      h("td", { class: "payload" }, row.preview))))));
}

function further({ rows, first, next, is_end }, { names: [topic], said }) {
  const to = (at, text) => h("a", { class: "button", href: address("topic", [topic], { ...(said.key ? { key: said.key } : {}), at }) }, text);
  return h("div", { class: "paging below" },
    said.key ? h("span", { class: "quiet" }, next > first ? `Searched offsets ${count(first)} to ${count(next - 1)}: ${counted(rows.length, "message")}.` : "") : null,
    first > 0 && !said.key ? to(`offset ${Math.max(first - 50, 0)}`, "‹ Earlier") : null,
    is_end || (!said.key && follows({ said })) ? null : to(`offset ${next}`, said.key ? "Search on ›" : "Later ›"));
}

function one({ message, story }, { names: [topic], said }) {
  const { open, ...rest } = said;
  const { content, row } = message;
  const facts = [["Message id", row.message_id], ["Publisher", message.publisher], ["Key", row.key], ["QoS", message.qos],
    ["Event time", message.event_time_ns && moment(message.event_time_ns)]].filter(([, value]) => value !== null && value !== "");
  return h("aside", { class: "one", "aria-label": `Message at offset ${open}` },
    h("div", { class: "bar" }, h("h2", {}, `Offset ${count(row.offset)}`), h("a", { class: "button", href: address("topic", [topic], rest) }, "Close")),
    h("h3", {}, "Story"),
    h("ol", { class: "story" }, story.map((event) => h("li", { class: event.mark },
      h("span", {}, event.text), event.timestamp_ns ? h("time", {}, moment(event.timestamp_ns)) : null))),
    h("h3", {}, "Payload"), payload(content),
    h("h3", {}, "Message"),
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    message.headers.length ? [h("h3", {}, "Headers"), h("dl", { class: "facts" }, message.headers.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))] : null);
}

function payload(content) {
  const known = Object.keys(FORMS).filter((name) => content[name] !== null);
  const shown = form && known.includes(form) ? form : content.best;
  const choose = (name) => () => {
    form = name;
    redraw();
  };
  return [
    h("div", { class: "forms", role: "group", "aria-label": "Show the payload as" },
      known.map((name) => h("button", { key: name, "aria-pressed": String(name === shown), on: { click: choose(name) } }, FORMS[name])),
      h("span", { class: "quiet" }, size(content.size))),
    h("pre", { tabindex: 0, "aria-label": `Payload as ${FORMS[shown]}` }, content[shown]),
    content.left_out && shown !== "hex" ? h("p", { class: "quiet" }, `${size(content.left_out)} more are not shown.`) : null,
  ];
}
