// Dead letters: of which topics there are some, and those of one, to be put again.

import { ask, change, Refused } from "./api.js";
import { confirmed, tell } from "./confirm.js";
import { h } from "./dom.js";
import { address, head, load, redraw } from "./main.js";
import { count, moment } from "./words.js";

const busy = new Set(); // letters that are being put again
const isPaused = () => head()?.paused != null; // then every put is refused

export const letters = {
  title: ({ names }) => (names[0] ? `Dead letters of ${names[0]}` : "Dead letters"),
  follows: () => true,
  load: ({ names, said }) => ask("letters", names[0] ? { topic: names[0], at: said.at ?? "earliest" } : {}),
  draw: (found, route) => (route.names[0] ? ofTopic(found, route) : overview(found)),
};

function overview({ topics }) {
  return [
    h("h1", {}, "Dead letters"),
    h("p", { class: "lead" }, "Messages that a subscriber has rejected, or that were delivered too often."),
    !topics.length ? h("p", { class: "empty" }, "There are none.")
      : h("div", { class: "table" }, h("table", { "aria-label": "Topics with dead letters", class: "narrow" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Topic"), h("th", { scope: "col", class: "number" }, "Letters"))),
        h("tbody", {}, topics.map((row) => h("tr", { key: row.topic },
          h("th", { scope: "row", class: "name" }, h("a", { href: address("letters", [row.topic]) }, row.topic)),
          h("td", { class: "number" }, count(row.end - row.start))))))),
  ];
}

function ofTopic({ rows, log, next, end }, { names: [topic] }) {
  const source = topic.replace(/\.dead$/, "");
  return [
    h("div", { class: "bar title" }, h("h1", {}, topic), h("a", { href: address("topic", [source]) }, `To ${source}`)),
    h("p", { class: "lead" }, "A letter that is put again becomes a new message of its topic, as it was: exactly once, however often it is asked for."),
    all(rows, topic, source, log),
    !rows.length ? h("p", { class: "empty" }, "No letter is stored here.")
      : h("div", { class: "table" }, h("table", { "aria-label": "Dead letters", class: "letters" },
        h("thead", {}, h("tr", {}, ["Letter", "Since", "Message", "Rejected by", "Deliveries", "Reason", "Payload", ""].map((name, n) =>
          h("th", { scope: "col", class: [0, 2, 4].includes(n) ? "number" : false }, name)))),
        h("tbody", {}, rows.map((one) => letter(one, topic, source, log))))),
    next < end ? h("div", { class: "paging below" }, h("a", { class: "button", href: address("letters", [topic], { at: `offset ${next}` }) }, "Later ›")) : null,
  ];
}

function letter(one, topic, source, log) {
  const { row } = one;
  return h("tr", { key: row.offset },
    h("th", { scope: "row", class: "number" }, h("a", { href: address("topic", [topic], { at: `offset ${row.offset}`, open: row.offset }) }, count(row.offset))),
    h("td", { class: "time" }, moment(row.timestamp_ns)),
    h("td", { class: "number" }, one.offset ? h("a", { href: address("topic", [source], { at: `offset ${one.offset}`, open: one.offset }) }, one.offset) : ""),
    h("td", { class: "name" }, one.subscriber),
    h("td", { class: "number" }, one.deliveries),
    h("td", { class: "why" }, one.reason),
    h("td", { class: "payload" }, row.preview),
    h("td", { class: "acts" }, again(one, topic, log)));
}

/** One after another, so that the new messages have the order of the letters. */
function all(rows, topic, source, log) {
  const left = rows.filter((one) => !one.is_again && !one.why_not).map((one) => one.row.offset);
  if (left.length < 2 || isPaused()) return null;
  const put = async () => {
    let done = 0;
    try {
      for (const offset of left) {
        tell(`Putting dead letters again: ${count(done + 1)} of ${count(left.length)} …`);
        await change("again", { topic, offset, log });
        done += 1;
      }
      tell(`${count(done)} dead letters are put again.`);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      tell(`${count(done)} of ${count(left.length)} dead letters are put again. Then: ${error.message}`, "bad");
    } finally {
      load();
    }
  };
  const title = `Put ${count(left.length)} dead letters again`;
  const text = `Each letter on this page that was not put again becomes a new message of ${source}, in their order. One that another console puts again meanwhile is stored once.`;
  return h("div", { class: "tools" }, h("button", { on: { click: () => confirmed(title, text, put) } }, `Put all ${count(left.length)} again …`));
}

function again(one, topic, log) {
  const { offset } = one.row;
  const name = `${log}\n${offset}`;
  if (one.is_again) return h("span", { key: "done", class: "badge good" }, "was put again");
  if (one.why_not) return h("span", { key: "no", class: "quiet" }, one.why_not);
  if (isPaused()) return h("span", { key: "paused", class: "quiet" }, "puts are paused");
  const put = async () => {
    if (busy.has(name)) return;
    busy.add(name);
    redraw();
    try {
      const { now } = await change("again", { topic, offset, log });
      tell(now ? `Dead letter ${offset} is put again.` : `Dead letter ${offset} was put again before.`);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      tell(error.message, "bad");
    } finally {
      busy.delete(name);
      load();
    }
  };
  return h("button", { key: "put", disabled: busy.has(name), "aria-label": `Put dead letter ${offset} again`, on: { click: put } }, "Put again");
}
