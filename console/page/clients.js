// The ids that the proxy knows, in their order, and how one that is gone for good is forgotten.

import { ask } from "./api.js";
import { action } from "./confirm.js";
import { h } from "./dom.js";
import { address } from "./main.js";
import { count, NONE, size } from "./words.js";

export const clients = {
  title: () => "Clients",
  follows: () => true,
  load: ({ said }) => ask("clients", { after: said.after ?? "" }),
  draw: ({ rows, next, keys }, { said }) => [
    h("h1", {}, "Clients"),
    h("p", { class: "lead" }, "Ids of publishers and subscribers that the proxy knows, whether they run or not."),
    finding(said),
    rows.length ? list(rows) : h("p", { class: "empty" }, said.after ? "No id follows this one." : "No client was here yet."),
    next ? h("div", { class: "paging below" }, h("a", { class: "button", href: address("clients", [], { after: next }) }, "Further ids ›")) : null,
    keys.length ? h("section", {}, h("div", { class: "bar" }, h("h2", {}, "Keys")), h("p", { class: "lead" }, "What counts for each key, those nearest to a bound of theirs first."), quotas(keys)) : null,
  ],
};

function finding(said) {
  const submit = (event) => {
    event.preventDefault();
    const after = new FormData(event.target).get("after").trim();
    location.hash = address("clients", [], after ? { after } : {});
  };
  return h("form", { class: "tools finding", "aria-label": "Find ids", on: { submit } },
    h("label", {}, h("span", {}, "Ids after"), h("input", { name: "after", value: said.after ?? "", placeholder: "the first ones", autocomplete: "off" })),
    h("button", { type: "submit", class: "main" }, "Show"));
}

function list(rows) {
  return h("div", { class: "table" }, h("table", { "aria-label": "Clients", class: "narrow" },
    h("thead", {}, h("tr", {}, ["Id", "Epoch", "Subscriptions", "Actions"].map((name, n) =>
      h("th", { scope: "col", class: n === 1 || n === 2 ? "number" : n === 3 ? "acts" : false }, name)))),
    h("tbody", {}, rows.map((one) => h("tr", { key: `${one.role}\n${one.client}` },
      h("th", { scope: "row", class: "name" }, h("span", { class: `kind ${one.role}` }, one.role), one.client),
      h("td", { class: "number" }, count(one.epoch)),
      h("td", { class: "number" }, one.role === "subscriber" ? count(one.subscriptions) : ""),
      h("td", { class: "acts" }, h("button", {
        "aria-label": `Forget ${one.role} ${one.client}`,
        on: { click: () => action(`Forget ${one.role} ${one.client}`, { action: "forget_client", client: one.client, role: one.role }) },
      }, "Forget …")))))));
}

function quotas(keys) {
  const amount = (quota, number) => (number === null ? NONE : quota.includes("bytes") ? size(number) : count(number));
  return h("div", { class: "table" }, h("table", { "aria-label": "Keys", class: "narrow" },
    h("thead", {}, h("tr", {}, ["Key", "Quota", "Used", "Bound"].map((name, n) => h("th", { scope: "col", class: n > 1 ? "number" : false }, name)))),
    h("tbody", {}, keys.map((one) => h("tr", { key: `${one.key}\n${one.quota}` },
      h("th", { scope: "row", class: "name" }, one.key),
      h("td", {}, one.quota.replace(/_max$/, "").replaceAll("_", " ")),
      h("td", { class: "number" }, amount(one.quota, one.used)),
      h("td", { class: "number" }, one.most !== null && one.used >= one.most ? h("span", { class: "badge warn" }, "reached") : null, " ", amount(one.quota, one.most)))))));
}
