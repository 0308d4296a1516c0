// Numbers, times and names in words. Pure.

const numbers = new Intl.NumberFormat("en-US");
const times = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit" });
const days = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
const seconds = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export function count(value: number, one: string, many = `${one}s`): string {
  return `${numbers.format(value)} ${value === 1 ? one : many}`;
}

export function whole(value: number): string {
  return numbers.format(value);
}

export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  for (const [unit, size] of [["kB", 1e3], ["MB", 1e6], ["GB", 1e9]] as const) {
    if (value < size * 1000) return `${(value / size).toFixed(value < size * 10 ? 1 : 0)} ${unit}`;
  }
  return `${(value / 1e12).toFixed(1)} TB`;
}

export function tokens(value: number): string {
  if (value < 10_000) return numbers.format(value);
  if (value < 1e6) return `${(value / 1e3).toFixed(1)}k`;
  return `${(value / 1e6).toFixed(1)}M`;
}

/** Return dollars. Null is a cost that is not known. */
export function money(value: number | null | undefined): string {
  if (value === null || value === undefined) return "No price";
  if (value > 0 && value < 0.01) return "< $0.01";
  return new Intl.NumberFormat("en-US", { style: "currency", currency: "USD" }).format(value);
}

/** Add thousands separators to the digits of a decimal, and change nothing else. */
export function decimal(digits: string): string {
  const match = /^(-?)(\d+)(\.\d+)?$/.exec(digits);
  if (!match) return digits;
  return `${match[1] ?? ""}${(match[2] ?? "").replace(/\B(?=(\d{3})+$)/g, ",")}${match[3] ?? ""}`;
}

export function time(at: string): string {
  const date = new Date(at);
  return Math.abs(Date.now() - date.getTime()) < 20 * 3600_000 ? times.format(date) : days.format(date);
}

export function exactTime(at: string): string {
  const date = new Date(at);
  return `${seconds.format(date)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

export function clock(at: number): string {
  return seconds.format(new Date(at));
}

/** Return a duration as `31.0 s`, `1:36`, `2:05:10`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const total = Math.floor(ms / 1000);
  const [h, m, s] = [Math.floor(total / 3600), Math.floor(total / 60) % 60, total % 60];
  const two = (value: number) => String(value).padStart(2, "0");
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** Return how much time is left, coarse above two minutes. */
export function timeLeft(ms: number): string {
  if (ms <= 0) return "0:00";
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 2) return duration(Math.max(ms, 0)).replace(/\.\d s$/, " s");
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 4) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  if (hours < 24) return `${hours} h`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function ago(at: string, now: number): string {
  const ms = Math.max(0, now - Date.parse(at));
  if (ms < 10_000) return "just now";
  if (ms < 60_000) return `${Math.floor(ms / 1000)} seconds ago`;
  if (ms < 3600_000) return `${Math.floor(ms / 60_000)} min ago`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3600_000)} h ago`;
  return `${Math.floor(ms / 86_400_000)} d ago`;
}

/** Shorten an id in its middle. */
export function shortId(id: string): string {
  return id.length <= 14 ? id : `${id.slice(0, 8)}…${id.slice(-4)}`;
}

/** Shorten a name in its middle, so that neither end can hide what it is. */
export function shortName(name: string, most = 48): string {
  const letters = [...name];
  if (letters.length <= most) return name;
  const half = Math.floor((most - 1) / 2);
  return `${letters.slice(0, half).join("")}…${letters.slice(-half).join("")}`;
}

/** Return `rebook × 2, refund` for kinds in order of their first use. */
export function kindCounts(kinds: readonly string[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const kind of kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [...counts];
}
