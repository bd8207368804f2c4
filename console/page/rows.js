// The cells of publishers and readers, which several views show.

import { h } from "./dom.js";
import { count, duration, rate } from "./words.js";

const TONES = { silent: "bad", stuck: "bad", "too slow": "warn", unmanned: "bad", "catching up": "good", expired: "quiet", new: "quiet" };

/** The kind of a reason as a word, and its sentence if there is room. */
export function reasonOf(reason, isWhole) {
  if (!reason) return null;
  return [h("span", { class: `badge ${TONES[reason.kind]}` }, reason.kind), isWhole ? h("span", {}, reason.text) : null];
}

export const publisher = (one) => ({
  cells: [rate(one.rate_per_s), "", "", "", ""],
  about: `QoS ${one.qos}, message ${count(one.last_sequence)} at offset ${count(one.last_offset)}`,
});

export const reader = (one) => ({
  cells: ["", rate(one.rate_per_s), count(one.lag_messages), duration(one.lag_s), one.lease_left_s === null ? "" : duration(one.lease_left_s)],
  about: [
    [one.about, one.state === "active" ? "" : one.state, one.via ? `by ${one.via}` : ""].filter(Boolean).join(" · "),
    reasonOf(one.reason, false),
  ],
});
