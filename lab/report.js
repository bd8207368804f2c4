// Words about a mark, the same message in all lanes, and a plot that can be stretched.
// Without this script the page is a still picture with the browser's own tooltips.
"use strict";
(() => {
  const timeline = document.querySelector(".timeline");
  const plot = timeline.querySelector(".plot");
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  const words = new Map();
  const sightings = new Map(); // message -> marks
  for (const title of plot.querySelectorAll("g title")) {
    words.set(title.parentNode, title.textContent);
    title.remove(); // or the browser would show it a second time
  }
  for (const mark of plot.querySelectorAll("[data-m]")) {
    for (const message of mark.dataset.m.split("\n")) {
      if (!sightings.has(message)) sightings.set(message, []);
      sightings.get(message).push(mark);
    }
  }

  let shown = [];
  const leave = () => {
    tip.hidden = true;
    for (const mark of shown) mark.classList.remove("same");
    shown = [];
  };
  const show = (event) => {
    leave();
    let target = event.target;
    while (target !== plot && target && !words.has(target)) target = target.parentNode;
    if (!words.has(target)) return;
    tip.textContent = words.get(target);
    tip.hidden = false;
    const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const above = event.clientY + 24 + tip.offsetHeight > innerHeight;
    tip.style.left = `${Math.max(x, 8)}px`;
    tip.style.top = `${event.clientY + (above ? -tip.offsetHeight - 12 : 18)}px`;
    const linked = target.closest("[data-m]");
    for (const message of linked ? linked.dataset.m.split("\n") : []) {
      shown.push(...sightings.get(message));
    }
    for (const mark of shown) mark.classList.add("same");
  };
  plot.addEventListener("pointerover", show);
  plot.addEventListener("pointerdown", show); // a finger does not hover
  plot.addEventListener("pointerleave", leave);

  const width = plot.viewBox.baseVal.width;
  const height = plot.viewBox.baseVal.height;
  const places = [];
  for (const drawn of plot.querySelectorAll("rect, use, line, circle, text")) {
    if (drawn.closest("defs")) continue;
    for (const name of ["x", "x1", "x2", "cx"]) {
      if (drawn.hasAttribute(name)) places.push([drawn, name, Number(drawn.getAttribute(name)), 0]);
    }
    if (drawn.dataset.w) places.push([drawn, "width", Number(drawn.dataset.w), 2]);
  }
  let stretch = 1;
  const setStretch = (wanted) => {
    const middle = (timeline.scrollLeft + timeline.clientWidth / 2) / stretch;
    stretch = wanted;
    plot.setAttribute("width", width * stretch);
    plot.setAttribute("viewBox", `0 0 ${width * stretch} ${height}`);
    for (const [drawn, name, value, least] of places) {
      drawn.setAttribute(name, Math.max(value * stretch, least));
    }
    for (const curves of plot.querySelectorAll(".curves")) {
      curves.setAttribute("transform", `scale(${stretch} 1)`);
    }
    for (const grid of plot.querySelectorAll(".grid")) {
      if (grid.classList.contains(`stretch-${stretch}`)) grid.removeAttribute("display");
      else grid.setAttribute("display", "none");
    }
    for (const button of zoom.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(Number(button.value) === stretch));
    }
    timeline.scrollLeft = middle * stretch - timeline.clientWidth / 2;
  };

  const zoom = document.createElement("div");
  zoom.className = "zoom";
  zoom.append("stretch");
  for (const wanted of [1, 2, 4, 8]) {
    const button = document.createElement("button");
    button.type = "button";
    button.value = String(wanted);
    button.textContent = `${wanted}×`;
    button.setAttribute("aria-pressed", String(wanted === 1));
    button.addEventListener("click", () => setStretch(wanted));
    zoom.append(button);
  }
  timeline.parentNode.before(zoom);
})();
