// A treegrid: rows that open, moved through by the arrow keys (WAI-ARIA, "Treegrid").

import { h } from "./dom.js";

let current = ""; // key of the row that Tab comes to

/** Rows are `{key, level, name, cells, about}`, with `opens` and `isOpen` if they have children. */
export function tree(label, columns, rows, toggle) {
  if (!rows.some((one) => one.key === current)) current = rows[0]?.key ?? "";
  const last = columns.length - 1;
  return h("div", { class: "table" }, h("table", { role: "treegrid", "aria-label": label, class: "tree" },
    h("thead", {}, h("tr", {}, columns.map((name, n) =>
      h("th", { scope: "col", class: n && n < last ? "number" : false }, name)))),
    h("tbody", {}, rows.map((one) => row(one, toggle)))));
}

function row(one, toggle) {
  const open = (isOpen) => one.opens && one.isOpen !== isOpen && toggle(one.key, isOpen);
  const on = {
    keydown: (event) => event.target === event.currentTarget && move(event, one, open),
    focus: () => (current = one.key),
  };
  const shown = { "aria-level": one.level, tabindex: one.key === current ? 0 : -1, class: `level-${one.level}` };
  if (one.opens) shown["aria-expanded"] = String(Boolean(one.isOpen));
  return h("tr", { key: one.key, ...shown, on },
    h("th", { scope: "row", role: "rowheader", class: "name" },
      one.opens
        ? h("button", { class: "twist", tabindex: -1, "aria-label": one.isOpen ? "Close" : "Open", on: { click: () => open(!one.isOpen) } }, one.isOpen ? "▾" : "▸")
        : h("span", { class: "twist" }),
      one.kind ? h("span", { class: `kind ${one.kind}` }, one.kind) : null,
      h("span", { class: "text" }, one.name)),
    [0, 1, 2, 3, 4].map((n) => h("td", { class: "number", role: "gridcell" }, one.cells[n] ?? "")),
    h("td", { class: "about", role: "gridcell" }, one.about));
}

function move(event, one, open) {
  const rows = [...event.currentTarget.parentElement.children];
  const at = rows.indexOf(event.currentTarget);
  const level = (row) => Number(row.getAttribute("aria-level"));
  const parent = rows.slice(0, at).reverse().find((row) => level(row) < one.level);
  const acts = {
    ArrowDown: () => rows[at + 1]?.focus(),
    ArrowUp: () => rows[at - 1]?.focus(),
    Home: () => rows[0].focus(),
    End: () => rows.at(-1).focus(),
    ArrowRight: () => (one.isOpen ? rows[at + 1]?.focus() : open(true)),
    ArrowLeft: () => (one.isOpen ? open(false) : parent?.focus()),
    Enter: () => event.currentTarget.querySelector("a")?.click(),
  };
  if (!(event.key in acts)) return;
  event.preventDefault();
  acts[event.key]();
}
