// What changed between two revisions of a plan, as the service compares them, and what a person changed in arguments.
import { useQuery, type UseQueryResult } from "@tanstack/react-query";

import { stringifyExact } from "../../../sdk/typescript/src/index.js";
import { readExact } from "../api.js";
import { isObject } from "../exact.js";
import { asList, asObject, asText } from "./data.js";

export interface FieldChange {
  /** A JSON pointer into the action, or into the plan. */
  pointer: string;
  /** Undefined if the field is new. */
  before: unknown;
  /** Undefined if the field is gone. */
  after: unknown;
}

export interface ActionChange {
  change: "same" | "changed" | "added" | "removed";
  /** The place in the new revision. */
  index: number | undefined;
  /** The place in the old revision. */
  before: number | undefined;
  kind: string;
  /** Whether its order among the actions of both revisions changed. */
  moved: boolean;
  fields: FieldChange[];
}

export interface PlanChanges {
  /** Differences outside of the actions. */
  context: FieldChange[];
  /** The actions of the new revision in its order, with those that were removed. */
  actions: ActionChange[];
}

/** Read what changed in a plan from one revision to another. The service matches the actions. */
export function usePlanChanges(planId: string, from: number | undefined, to: number | undefined): UseQueryResult<PlanChanges> {
  return useQuery({
    queryKey: ["plan", planId, "changes", from, to],
    enabled: from !== undefined && to !== undefined,
    staleTime: Infinity,
    queryFn: async ({ signal }) => {
      const read = asObject(await readExact(`plans/${encodeURIComponent(planId)}/revisions/${to}/changes?from=${from}`, signal));
      return { context: asList(read.context).map(parseField), actions: asList(read.actions).map(parseAction) };
    },
  });
}

function parseAction(value: unknown): ActionChange {
  const action = asObject(value);
  const place = (index: unknown) => (index === null || index === undefined ? undefined : Number(asText(index)));
  return {
    change: asText(action.change) as ActionChange["change"],
    index: place(action.after),
    before: place(action.before),
    kind: asText(action.kind),
    moved: action.moved === true,
    fields: asList(action.fields).map(parseField),
  };
}

function parseField(value: unknown): FieldChange {
  const field = asObject(value);
  return { pointer: asText(field.pointer), before: field.before, after: field.after };
}

/** Write the pointer of a field as a path such as `amount` or `flights[2].carrier`. `base` is left out. */
export function pathOf(pointer: string, base = ""): string {
  const parts = pointer.slice(pointer.startsWith(`${base}/`) ? base.length : 0).split("/").slice(1);
  return parts
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"))
    .map((part, index) => (/^(0|[1-9]\d*)$/.test(part) ? `[${part}]` : index === 0 ? part : `.${part}`))
    .join("") || "all of it";
}

/** Return the pointer of a field below another one. */
export function pointerBelow(pointer: string, name: string | number): string {
  return `${pointer}/${String(name).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** Return every field in which two values differ. Lists are compared as wholes if their lengths differ. */
export function compareFields(before: unknown, after: unknown, pointer = ""): FieldChange[] {
  if (isObject(before) && isObject(after)) {
    const keys = [...new Set([...Object.keys(after), ...Object.keys(before)])];
    return keys.flatMap((key) => compareFields(before[key], after[key], pointerBelow(pointer, key)));
  }
  if (Array.isArray(before) && Array.isArray(after) && before.length === after.length) {
    return after.flatMap((item, index) => compareFields(before[index], item, pointerBelow(pointer, index)));
  }
  const same = before === undefined || after === undefined ? before === after : stringifyExact(before) === stringifyExact(after);
  return same ? [] : [{ pointer, before, after }];
}
