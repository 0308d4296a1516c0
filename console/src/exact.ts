// JSON whose numbers keep their digits: `JSON.parse` shows 9007199254740993 as 9007199254740992, and 100.00 as 100.
import { ExactNumber, parseExact, type ExactValue, type PlangateEvent } from "../../sdk/typescript/src/index.js";

/** Return whether a parsed value is a JSON object: not a list, and not a number that keeps its digits. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);
}

/** The fields of responses and events that may be any JSON. The numbers of all others are plain: counts, sizes, costs. */
const ANY_JSON = new Set([
  "after", "args", "before", "body", "content", "details", "document", "error", "facts", "glimpse", "glimpses", "input",
  "inputSchema", "inputs", "lateResult", "metadata", "originalArgs", "output", "outputSchema", "partial", "payload", "result",
  "schema", "sentArgs", "stateSchema", "value",
]);
/** A number that loses digits as a double: many digits, a zero at its end, an exponent, or minus zero. Few strings match. */
const MAY_LOSE_DIGITS = /(?:^|[:,[])\s*-?(?:\d{16}|[\d.]{17}|\d+(?:\.\d+)?[eE]|(?:\d+\.\d*0|(?<=-)0)(?=[\s,}\]]|$))/;

/** Parse a response. Below fields that may be any JSON, each number that could lose digits is an ExactNumber. */
export function parseAnswer(text: string): unknown {
  return MAY_LOSE_DIGITS.test(text) ? withPlainNumbers(parseExact(text)) : JSON.parse(text || "null");
}

function withPlainNumbers(value: ExactValue): unknown {
  if (value instanceof ExactNumber) return value.toNumber();
  if (Array.isArray(value)) return value.map(withPlainNumbers);
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [name, ANY_JSON.has(name) ? item : withPlainNumbers(item as ExactValue)]),
  );
}

const texts = new WeakMap<PlangateEvent, string>();

/** Parse an event, and remember its JSON. */
export function parseEvent(json: string): PlangateEvent {
  const event = parseAnswer(json) as PlangateEvent;
  texts.set(event, json);
  return event;
}

/** Return the JSON of an event as it was received. */
export function jsonOf(event: PlangateEvent): string {
  return texts.get(event) ?? JSON.stringify(event);
}
