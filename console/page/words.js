// Numbers, sizes and times as a person reads them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const NONE = "–";

export const count = (number) => whole.format(number);

export const counted = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

/** A rate in a second; `null` is not known yet. */
export function rate(perS) {
  if (perS === null) return NONE;
  return perS === 0 || perS >= 100 ? whole.format(perS) : tenths.format(perS);
}

export function size(bytes) {
  if (bytes < 1000) return `${bytes}\u00a0B`;
  for (const unit of ["kB", "MB", "GB"]) {
    bytes /= 1000;
    if (bytes < 999.5) return `${bytes < 10 ? tenths.format(bytes) : whole.format(bytes)}\u00a0${unit}`;
  }
  return `${tenths.format(bytes / 1000)} TB`;
}

export function duration(seconds) {
  if (seconds === null) return NONE;
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * length) return `${whole.format(seconds / length)} ${unit}`;
  }
  return seconds >= 10 ? `${whole.format(seconds)} s` : `${tenths.format(seconds)} s`;
}

const two = (number) => String(number).padStart(2, "0");

/** Nanoseconds since 1970, as digits, in the zone of this browser. */
export function moment(ns) {
  const at = new Date(Number(BigInt(ns) / 1000000n));
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const ms = String(at.getMilliseconds()).padStart(3, "0");
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${ms}`;
}
