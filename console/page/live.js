// The first view: sums, who is slow, the tree of topics with publishers and readers, the nodes.

import { ask } from "./api.js";
import { charts } from "./charts.js";
import { h } from "./dom.js";
import { address, head, load, refine } from "./main.js";
import { reader as readerCells, publisher as publisherCells, reasonOf } from "./rows.js";
import { tree } from "./tree.js";
import { count, counted, duration, rate, size } from "./words.js";

const PAGE = 50;
const SLOW_SHOWN = 3;
const ORDERS = { name: "Name", rate: "Put rate", lag: "Oldest waiting", size: "Size" };

const asked = ({ said }) => ({ search: said.search ?? "", order: said.order in ORDERS ? said.order : "name", first: said.first ?? "0" });
const opened = new Set();

export const live = {
  title: () => "Live",
  follows: () => true,
  async load(route) {
    const [topics, slow, nodes, history] = await Promise.all([
      ask("topics", { ...asked(route), open: [...opened] }), ask("slow"), ask("nodes"), ask("history"),
    ]);
    return { topics, slow, nodes, history };
  },
  draw: ({ topics, slow, nodes, history }, route) => [
    h("h1", { class: "unshown" }, "Live"),
    tiles(),
    charts(history),
    slow.length ? slowest(slow) : null,
    h("section", { "aria-labelledby": "topics-title" },
      h("div", { class: "bar" }, h("h2", { id: "topics-title" }, "Topics"), searching(asked(route)), paging(topics)),
      topics.found ? topicTree(topics)
        : h("p", { class: "empty" }, asked(route).search ? "No topic has this in its name." : "No topics yet: the first put makes one.")),
    nodes.length ? nodeTable(nodes) : null,
  ],
};

export const slow = {
  title: () => "Who is slow, and why",
  follows: () => true,
  load: () => ask("slow"),
  draw: (rows) => [
    h("h1", {}, "Who is slow, and why"),
    h("p", { class: "lead" }, "Readers whose oldest message waits for more than a second, the longest first; then those whose lease has ended."),
    rows.length ? slowTable(rows) : h("p", { class: "empty" }, "No reader is slow."),
  ],
};

function tiles() {
  const now = head();
  if (!now) return null;
  const tile = (name, value, tone) => h("div", { class: tone || false }, h("dt", {}, name), h("dd", {}, value));
  return h("dl", { class: "tiles" },
    tile("put /s", rate(now.put_per_s)), tile("acknowledged /s", rate(now.acknowledged_per_s)),
    tile("topics", count(now.topics)), tile("readers", count(now.subscriptions)),
    tile("slow", count(now.slow), now.slow ? "warn" : ""),
    tile("dead letters", count(now.dead_letters), now.dead_letters ? "bad" : ""),
    tile("stored", size(now.stored_bytes)), tile("durability", now.durability));
}

function slowest(rows) {
  return h("section", { "aria-labelledby": "slow-title" },
    h("div", { class: "bar" }, h("h2", { id: "slow-title" }, "Who is slow, and why"),
      rows.length > SLOW_SHOWN ? h("a", { href: address("slow") }, `All ${count(rows.length)}`) : null),
    slowTable(rows.slice(0, SLOW_SHOWN)));
}

function slowTable(rows) {
  return h("div", { class: "table" }, h("table", { "aria-label": "Slow readers" },
    h("thead", {}, h("tr", {}, ["Reader", "Topic", "Lag", "Oldest waits", "Why"].map((name, n) =>
      h("th", { scope: "col", class: n === 2 || n === 3 ? "number" : false }, name)))),
    h("tbody", {}, rows.map((one) => h("tr", { key: `${one.topic}\n${one.kind}\n${one.reader}` },
      h("th", { scope: "row", class: "name" }, one.reader),
      h("td", { class: "name" }, h("a", { href: address("topic", [one.topic, "readers"]) }, one.topic)),
      h("td", { class: "number" }, count(one.lag_messages)),
      h("td", { class: "number" }, duration(one.lag_s)),
      h("td", { class: "why" }, reasonOf(one.reason, true)))))));
}

function searching({ search, order }) {
  return h("div", { class: "tools" },
    h("label", {}, h("span", {}, "Search"),
      h("input", { type: "search", value: search, placeholder: "part of a name", autocomplete: "off", on: { input: (e) => refine({ search: e.target.value, first: "" }) } })),
    h("label", {}, h("span", {}, "Order"),
      h("select", { value: order, on: { change: (e) => refine({ order: e.target.value, first: "" }) } },
        Object.entries(ORDERS).map(([value, text]) => h("option", { value }, text)))));
}

function paging({ first, rows, found }) {
  const go = (to) => () => refine({ first: to });
  return h("div", { class: "paging", role: "group", "aria-label": "Pages of topics" },
    h("span", { class: "quiet" }, found ? `${count(first + 1)} to ${count(first + rows.length)} of ${count(found)}` : "none"),
    h("button", { disabled: first === 0, "aria-label": "Earlier topics", on: { click: go(Math.max(first - PAGE, 0)) } }, "‹"),
    h("button", { disabled: first + rows.length >= found, "aria-label": "Further topics", on: { click: go(first + PAGE) } }, "›"));
}

function topicTree(page) {
  const rows = page.rows.flatMap((one) => {
    const detail = page.opened[one.topic];
    return [topicRow(one, detail), ...(detail ? children(detail) : [])];
  });
  const toggle = (name, isOpen) => {
    if (isOpen) opened.add(name);
    else opened.delete(name);
    load();
  };
  return tree("Topics with publishers and readers",
    ["Name", "Put /s", "Acknowledged /s", "Lag", "Oldest waits", "Lease left", "About"], rows, toggle);
}

function topicRow(one, detail) {
  const about = [
    counted(one.publishers, "publisher"), counted(one.readers, "reader"), size(one.stored_bytes),
  ].join(" · ");
  return {
    key: one.topic, level: 1, opens: one.publishers + one.readers > 0, isOpen: Boolean(detail),
    name: h("a", { href: address("topic", [one.topic]), tabindex: -1 }, one.topic),
    cells: [rate(one.rate_per_s), "", one.lag_messages ? count(one.lag_messages) : "0", one.readers ? duration(one.lag_s) : "", ""],
    about: [about,
      one.slow ? h("span", { class: "badge warn" }, `${count(one.slow)} slow`) : null,
      one.dead_letters ? h("span", { class: "badge bad" }, `${counted(one.dead_letters, "dead letter")}`) : null],
  };
}

function children({ row, publishers, readers, left_out }) {
  const rows = [
    ...publishers.map((one) => ({
      key: `${row.topic}\np\n${one.publisher}\n${one.qos}`, level: 2, kind: "publisher", name: one.publisher, ...publisherCells(one),
    })),
    ...readers.map((one) => ({
      key: `${row.topic}\n${one.kind}\n${one.reader}`, level: 2, kind: one.kind, name: one.reader, ...readerCells(one),
    })),
  ];
  if (left_out) rows.push({ key: `${row.topic}\nmore`, level: 2, name: `and ${count(left_out)} more`, cells: [], about: "" });
  return rows;
}

function nodeTable(nodes) {
  return h("section", { "aria-labelledby": "nodes-title" },
    h("div", { class: "bar" }, h("h2", { id: "nodes-title" }, "Nodes that push")),
    h("div", { class: "table" }, h("table", { "aria-labelledby": "nodes-title" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Node"), h("th", { scope: "col" }, "Kind"),
        h("th", { scope: "col", class: "number" }, "Batches /s"), h("th", { scope: "col" }, "About"))),
      h("tbody", {}, nodes.map((one, n) => h("tr", { key: `${n} ${one.name}` },
        h("th", { scope: "row", class: `name indent-${Math.min(one.level, 6)}` }, one.name),
        h("td", {}, h("span", { class: `kind ${one.kind}` }, one.kind === "link" ? "subscriber" : one.kind)),
        h("td", { class: "number" }, one.rate_per_s === null ? "" : rate(one.rate_per_s)),
        h("td", { class: "why" }, one.text)))))));
}
