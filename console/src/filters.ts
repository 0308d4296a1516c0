// Filters of lists: they are in the address, so that a link opens the same list.
import { useEffect, useState } from "react";
import { useSearchParams } from "wouter";

const TYPING_MS = 250;
const DAY = /^\d{4}-\d\d-\d\d$/;

/** Return the parameters of the address, and a function that sets some of them. Empty ones are removed. */
export function useAddressFilters(): [URLSearchParams, (changes: Record<string, string>) => void] {
  const [parameters, setParameters] = useSearchParams();
  return [
    parameters,
    (changes) =>
      setParameters((before) => {
        const next = new URLSearchParams(before);
        for (const [name, value] of Object.entries(changes)) {
          if (value) next.set(name, value);
          else next.delete(name);
        }
        return next;
      }, { replace: true }),
  ];
}

/** Return those of the named parameters that are set. `from` and `to` are days of this browser's time zone, `to` included. */
export function readFilters<N extends string>(parameters: URLSearchParams, names: readonly N[]): { [name in N]?: string } {
  const filters: { [name in N]?: string } = {};
  for (const name of names) {
    const value = parameters.get(name);
    if (value) filters[name] = DAY.test(value) && (name === "from" || name === "to") ? midnight(value, name === "to" ? 1 : 0) : value;
  }
  return filters;
}

function midnight(day: string, daysLater: number): string {
  const [year = 0, month = 1, date = 1] = day.split("-").map(Number);
  return new Date(year, month - 1, date + daysLater).toISOString();
}

/** Return a value once it has not changed for a moment, so that typing does not send a request for each letter. */
export function useSettled<T>(value: T): T {
  const [settled, setSettled] = useState(value);
  const text = JSON.stringify(value);
  useEffect(() => {
    const wait = setTimeout(() => setSettled(JSON.parse(text) as T), TYPING_MS);
    return () => clearTimeout(wait);
  }, [text]);
  return settled;
}
