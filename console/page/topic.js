// One topic: its messages, who puts and who reads, and what an operator may do to it.

import { ask } from "./api.js";
import { charts } from "./charts.js";
import { action } from "./confirm.js";
import { h } from "./dom.js";
import { address } from "./main.js";
import { follows, loadMessages, messages } from "./messages.js";
import { publisher, reader } from "./rows.js";
import { count, counted, rate, size } from "./words.js";

const PLACES = "earliest, now, offset 42, newest 10, time 2026-11-21T08:00:00Z, age 1h";

export const topic = {
  title: ({ names }) => names[0],
  follows: (route) => route.names[1] === "readers" || follows(route),
  async load(route) {
    const topic = route.names[0];
    const [found, history] = await Promise.all([ask("topic", { topic }), ask("history", { topic })]);
    const listed = route.names[1] === "readers" ? null : await loadMessages(route);
    return { ...found, history, listed };
  },
  draw({ topic: detail, dead, history, listed }, route) {
    const name = route.names[0];
    const tab = (to, text) =>
      h("a", { href: address("topic", to ? [name, to] : [name]), "aria-current": (route.names[1] ?? "") === to ? "page" : false }, text);
    return [
      h("div", { class: "bar title" }, h("h1", {}, name),
        h("div", { class: "tools" },
          h("button", { on: { click: () => action(`Remove messages of ${name}`, { action: "truncate", topic: name }, ["start", "Keep from (what is before it is removed)", "offset 42, age 1h, or now"]) } }, "Remove messages …"),
          h("button", { on: { click: () => action(`Delete ${name}`, { action: "delete_topic", topic: name }) } }, "Delete …"))),
      h("p", { class: "lead" }, facts(detail.row)),
      charts(history),
      h("nav", { class: "tabs", "aria-label": "Of this topic" },
        tab("", "Messages"), tab("readers", `Who puts and reads`),
        dead ? h("a", { href: address("letters", [dead]) }, "Dead letters") : null),
      listed ? messages(listed, route) : [readers(detail), publishers(detail)],
    ];
  },
};

function facts(row) {
  const held = row.end - row.start;
  const range = held ? `offsets ${count(row.start)} to ${count(row.end - 1)}` : "nothing stored";
  const rest = [counted(held, "message"), range, size(row.stored_bytes), row.rate_per_s === null ? "" : `${rate(row.rate_per_s)} put /s`];
  if (row.ring !== null) rest.push(`${count(row.ring)} at QoS 0`);
  return rest.filter(Boolean).join(" · ");
}

function readers({ row, readers: all }) {
  if (!all.length) return h("p", { class: "empty" }, "No reader: what is put is history, until the topic's retention removes it.");
  return section("Readers", ["Reader", "Acknowledged /s", "Cursor", "Lag", "Oldest waits", "Lease left", "About", "Actions"], [1, 2, 3, 4, 5],
    all.map((one) => {
      const { cells, about } = reader(one);
      return [`${one.kind}\n${one.reader}`, h("th", { scope: "row", class: "name" }, h("span", { class: `kind ${one.kind}` }, one.kind), one.reader),
        [cells[1], count(one.cursor), cells[2], cells[3], cells[4]].map((text) => h("td", { class: "number" }, text)),
        h("td", { class: "about" }, about, one.reason ? h("span", { class: "sentence" }, one.reason.text) : null),
        h("td", { class: "acts" }, one.kind === "subscriber" ? acts(row.topic, one.reader) : null)];
    }));
}

function acts(name, subscriber) {
  const of = { topic: name, subscriber };
  const button = (text, title, asked, needs) =>
    h("button", { "aria-label": `${text} ${subscriber}`, on: { click: () => action(title, { ...asked, ...of }, needs) } }, `${text} …`);
  return [
    button("Skip", `Skip messages for ${subscriber}`, { action: "skip" }),
    button("Move", `Move ${subscriber}`, { action: "set_cursor" }, ["start", "Where it is to go on", PLACES]),
    button("End", `End the subscription of ${subscriber}`, { action: "end_subscription" }),
  ];
}

function publishers({ publishers: all }) {
  if (!all.length) return null;
  return section("Publishers", ["Publisher", "QoS", "Put /s", "Message", "At offset"], [1, 2, 3, 4],
    all.map((one) => [`${one.publisher}\n${one.qos}`, h("th", { scope: "row", class: "name" }, one.publisher),
      [one.qos, publisher(one).cells[0], count(one.last_sequence), count(one.last_offset)].map((text) => h("td", { class: "number" }, text))]), "narrow");
}

function section(title, columns, numbers, rows, kind = false) {
  return h("section", {}, h("div", { class: "bar" }, h("h2", {}, title)),
    h("div", { class: "table" }, h("table", { "aria-label": title, class: kind },
      h("thead", {}, h("tr", {}, columns.map((name, n) => h("th", { scope: "col", class: numbers.includes(n) ? "number" : name === "Actions" ? "acts" : false }, name)))),
      h("tbody", {}, rows.map(([key, ...cells]) => h("tr", { key }, cells))))));
}
