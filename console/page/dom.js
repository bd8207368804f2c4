// Elements from values. Every text goes into the document by `createTextNode` or `setAttribute`, and
// no value becomes markup, a script, a style or an address of another site.

// Characters that change how others are read, or that are not seen: controls, marks of direction,
// joiners, fillers, private use, halves of surrogate pairs.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}\u115f\u1160\u2800\u3164\uffa0]/u;
const UNSEEN_ALL = new RegExp(UNSEEN, "gu");

const code = (char) =>
  `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

const SVG = new Set(["svg", "path"]);

// What is kept of an element. Not under a name: of a form that is the field of this name, if it has one.
const KEY = Symbol("key");
const TYPED = Symbol("value that was set last");
const LISTENERS = Symbol("listeners");

/** A text with such characters as `U+202E`, for places that have no elements: labels, titles. */
export const visible = (text) => String(text).replace(UNSEEN_ALL, code);

/**
 * An element as a value.
 * `props.key` tells it from its siblings, `props.on` are listeners by event; the rest are attributes,
 * and `false`, `null` or `undefined` is none.
 */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children };
}

/** Make the children of an element what these values say; elements that stay keep their focus. */
export function draw(parent, ...values) {
  const wanted = [...flat(values, parent.localName === "pre")];
  const keyed = new Map();
  for (const child of parent.childNodes) if (child[KEY] !== undefined) keyed.set(child[KEY], child);
  let next = parent.firstChild;
  for (const value of wanted) {
    const key = value.props?.key;
    let node = key === undefined ? next : keyed.get(key);
    if (!node || !fits(node, value)) {
      node = make(value);
      parent.insertBefore(node, next);
    } else if (node !== next) {
      parent.insertBefore(node, next);
    } else {
      next = next.nextSibling;
    }
    fill(node, value);
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
}

function* flat(values, keepsLines) {
  for (const value of values) {
    if (value === null || value === undefined || value === false) continue;
    if (Array.isArray(value)) yield* flat(value, keepsLines);
    else if (typeof value === "object") yield value;
    else yield* pieces(String(value), keepsLines);
  }
}

function* pieces(text, keepsLines) {
  let plain = "";
  for (const char of text) {
    if (!UNSEEN.test(char) || (keepsLines && (char === "\n" || char === "\t"))) {
      plain += char;
      continue;
    }
    if (plain) yield { text: plain };
    plain = "";
    yield { tag: "span", props: { class: "unseen" }, children: [code(char)] };
  }
  if (plain) yield { text: plain };
}

const fits = (node, value) =>
  value.text === undefined
    ? node.nodeType === Node.ELEMENT_NODE && node.localName === value.tag && node[KEY] === value.props.key
    : node.nodeType === Node.TEXT_NODE;

function make(value) {
  if (value.text !== undefined) return document.createTextNode(value.text);
  const node = SVG.has(value.tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", value.tag)
    : document.createElement(value.tag);
  node[KEY] = value.props.key;
  return node;
}

function fill(node, value) {
  if (value.text !== undefined) {
    if (node.data !== value.text) node.data = value.text;
    return;
  }
  const { key, on, value: typed, ...attributes } = value.props;
  for (const { name } of [...node.attributes]) {
    if (!(name in value.props) && name !== "open") node.removeAttribute(name);
  }
  for (const [name, said] of Object.entries(attributes)) {
    if (said === false || said === null || said === undefined) node.removeAttribute(name);
    else if (name === "href" && !String(said).startsWith("#")) throw new Error("a link leaves the page");
    else {
      const text = said === true ? "" : name === "href" ? String(said) : visible(said);
      if (node.getAttribute(name) !== text) node.setAttribute(name, text);
    }
  }
  listen(node, on ?? {});
  draw(node, ...value.children);
  if (typed !== undefined && node[TYPED] !== typed) node.value = node[TYPED] = typed; // not what a person typed since
}

function listen(node, on) {
  node[LISTENERS] ??= {};
  for (const event of Object.keys(on)) {
    if (!(event in node[LISTENERS])) node.addEventListener(event, (e) => node[LISTENERS][event]?.(e));
  }
  for (const event of Object.keys(node[LISTENERS])) node[LISTENERS][event] = on[event] ?? null;
  Object.assign(node[LISTENERS], on);
}
