import { parse, stringify } from "lossless-json";

/** A number with the digits that were written: `JSON.parse` shows 9007199254740993 as 9007199254740992. */
export class ExactNumber {
  constructor(readonly digits: string) {}

  toString(): string {
    return this.digits;
  }

  /** Return the nearest double, which may differ from the number. */
  toNumber(): number {
    return Number(this.digits);
  }
}

/** A JSON value in which every number keeps its digits. */
export type ExactValue =
  | null
  | boolean
  | string
  | ExactNumber
  | ExactValue[]
  | { [key: string]: ExactValue };

/**
 * Parse JSON and keep every number as it was written.
 *
 * @throws SyntaxError if the text is not JSON, or an object has the same key twice with different values.
 */
export function parseExact(text: string): ExactValue {
  return parse(text, null, (digits) => new ExactNumber(digits)) as ExactValue;
}

/** Write a value as JSON. An `ExactNumber` keeps its digits; a `bigint` is written in full. */
export function stringifyExact(value: unknown, indent?: number): string {
  const number = {
    test: (one: unknown) => one instanceof ExactNumber,
    stringify: (one: unknown) => (one as ExactNumber).digits,
  };
  const text = stringify(value, null, indent, [number]);
  if (text === undefined) throw new TypeError("the value cannot be written as JSON");
  return text;
}
