// The facts that the kind of a plan declares. The service computes them from stored values; no model does.
import { ExactNumber } from "../../../sdk/typescript/src/index.js";
import type { Fact } from "../components.js";
import { decimal } from "../format.js";
import { Safe, compact } from "../text.js";
import { asList, asObject, asText } from "./data.js";

/** The most characters of a text among facts; a button shows the rest. */
const MOST_CHARS = 60;

/** Return the facts of a subject, an approval or a plan as they are shown. */
export function parseFacts(facts: unknown): Fact[] {
  return asList(facts).map((each) => parseFact(asObject(each)));
}

function parseFact(fact: Record<string, unknown>): Fact {
  const label = <Safe text={asText(fact.label) || asText(fact.name)} limit={60} />;
  if (fact.status !== "known") return { label, value: "–", note: "not known before execution" };
  // Text may be copied from what a model wrote.
  const value = isNumber(fact) ? decimal(asText(fact.value)) : <span className="written"><Safe text={typeof fact.value === "string" ? fact.value : compact(fact.value)} limit={MOST_CHARS} /></span>;
  const unit = asText(fact.unit);
  return { label, value, ...(unit && { unit: <Safe text={unit} limit={20} /> }), note: "computed" };
}

function isNumber(fact: Record<string, unknown>): boolean {
  return fact.kind === "decimal" || typeof fact.value === "number" || fact.value instanceof ExactNumber;
}

/** Return the first number among the facts, such as `24,950.00 USD` or `Late flights 226`, or undefined. */
export function firstNumber(facts: unknown): { label: string; text: string } | undefined {
  const fact = asList(facts).map(asObject).find((each) => each.status === "known" && isNumber(each));
  if (!fact) return undefined;
  const [label, value, unit] = [asText(fact.label) || asText(fact.name), decimal(asText(fact.value)), asText(fact.unit)];
  return { label, text: unit ? `${value} ${unit}` : `${label} ${value}` };
}
