// Put rate and lag over the last hours. A sample that is missing is a gap in the line.

import { h } from "./dom.js";
import { duration, NONE, rate } from "./words.js";

const WIDTH = 600;
const HEIGHT = 64;

export function charts({ gap_s: gap, at_s: times, put_per_s: rates, lag_s: lags }) {
  if (times.length < 2) return null;
  return h("div", { class: "charts" },
    chart("Put /s", "rate", rate, gap, times, rates),
    chart("Oldest waits", "lag", duration, gap, times, lags));
}

function chart(title, kind, words, gap, times, values) {
  const known = values.filter((value) => value !== null);
  const most = Math.max(...known, 0);
  const now = values.at(-1);
  const sum = `now ${now === null ? NONE : words(now)}, at most ${words(most)}`;
  return h("figure", { class: kind },
    h("figcaption", {}, h("span", {}, title), h("span", {}, sum)),
    h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `${title} since ${clock(times[0])}: ${sum}` },
      h("path", { d: path(gap, times, values, most) })),
    h("div", { class: "times" }, h("span", {}, clock(times[0])), h("span", {}, clock(times.at(-1)))));
}

/** The line; each piece begins where a sample has none just before it. */
function path(gap, times, values, most) {
  const [first, last] = [times[0], times.at(-1)];
  let isOpen = false;
  return times.map((at, n) => {
    if (values[n] === null) {
      isOpen = false;
      return "";
    }
    const isNext = isOpen && at - times[n - 1] < gap;
    isOpen = true;
    const x = ((at - first) / (last - first)) * WIDTH;
    const y = HEIGHT - 2 - (values[n] / (most || 1)) * (HEIGHT - 4);
    const point = `${x.toFixed(1)} ${y.toFixed(1)}`;
    return isNext ? `L${point}` : `M${point}h0`;
  }).join("");
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hour12: false });
