// An action of `admin`: what it needs, what it would do, and whether it is meant.

import { change, Refused } from "./api.js";
import { draw, h } from "./dom.js";
import { address, load } from "./main.js";

const place = (id) => document.getElementById(id);

let clearing = 0;

/** Tell something that has happened, for some seconds; a refusal, until there is time to read it. */
export function tell(text, tone = "good") {
  draw(place("told"), h("p", { class: tone }, text));
  clearTimeout(clearing);
  clearing = setTimeout(() => draw(place("told")), tone === "bad" ? 30_000 : 8_000);
}

/** Do something once it is confirmed. */
export function confirmed(title, text, carryOut) {
  const dialog = place("dialog");
  const go = () => {
    close();
    carryOut();
  };
  show(dialog, title, h("p", {}, text), h("button", { key: "do", type: "button", class: "danger", on: { click: go } }, "Do it"));
  dialog.showModal();
  dialog.querySelector("button").focus();
}

/**
 * Ask for an action, look at what it would do, let it be confirmed, do it.
 * `needs` is the name and the label of a field that is to be filled in first, with an example.
 */
export function action(title, asked, needs = null) {
  const dialog = place("dialog");
  if (needs) fields(dialog, title, asked, needs);
  else look(dialog, title, asked);
  if (!dialog.open) dialog.showModal();
}

const close = () => place("dialog").close();

function show(dialog, title, body, ...buttons) {
  draw(dialog, h("form", { key: title, method: "dialog" },
    h("h2", { id: "dialog-title" }, title), body,
    h("div", { class: "buttons" }, h("button", { type: "button", on: { click: close } }, "Cancel"), buttons)));
}

function fields(dialog, title, asked, [name, label, example]) {
  const submit = (event) => {
    event.preventDefault();
    look(dialog, title, { ...asked, [name]: dialog.querySelector("input").value });
  };
  draw(dialog, h("form", { key: `${title} of`, on: { submit } },
    h("h2", { id: "dialog-title" }, title),
    h("label", {}, label, h("input", { name, autocomplete: "off", placeholder: example ?? "", maxlength: 255 })),
    h("div", { class: "buttons" },
      h("button", { type: "button", on: { click: close } }, "Cancel"),
      h("button", { type: "submit", class: "main" }, "Look at what it does"))));
}

async function look(dialog, title, asked) {
  show(dialog, title, h("p", { class: "quiet" }, "Looking at what it would do …"));
  try {
    const seen = await change("act", { asked, look: true });
    if (seen.already) return show(dialog, title, h("p", {}, "There is nothing to do: it is so already."));
    show(dialog, title, h("p", {}, `This ${seen.words}.`),
      h("button", { key: "do", type: "button", class: "danger", on: { click: () => carryOut(dialog, title, seen.asked) } }, "Do it"));
    dialog.querySelector("button").focus();
  } catch (error) {
    failed(dialog, title, error);
  }
}

async function carryOut(dialog, title, asked) {
  show(dialog, title, h("p", { class: "quiet" }, "Doing it …"));
  try {
    const done = await change("act", { asked, look: false });
    close();
    tell(done.already ? "It was done before." : `Done, as action ${done.number}: it ${done.words}.`);
    if (asked.action === "delete_topic") location.hash = address(""); // what was shown is gone
    else await load();
  } catch (error) {
    failed(dialog, title, error);
  }
}

function failed(dialog, title, error) {
  if (!(error instanceof Refused)) throw error;
  show(dialog, title, h("p", { class: "refused", role: "alert" }, error.message));
}
