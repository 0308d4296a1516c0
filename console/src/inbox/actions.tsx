// The actions of a plan as a table, which is the diff at the same time.
import { Sparkles } from "lucide-react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useMemo, useRef, type ReactNode } from "react";

import { Inline, Safe } from "../text.js";
import { pathOf, pointerBelow, type ActionChange, type FieldChange } from "./changes.js";
import { asList, asObject, asText } from "./data.js";

const VIRTUAL_FROM = 200;

export interface TypedAction {
  kind: string;
  payload: Record<string, unknown>;
  references: { kind: string; id: string }[];
  outputPath: string | undefined;
  outputMethod: string | undefined;
  /** What differs for this kind: `never` cannot be repeated safely. Unknown for a service that does not say. */
  replay: string | undefined;
}

export function parseAction(value: unknown, replay?: Record<string, unknown>): TypedAction {
  const action = asObject(value);
  const kind = asText(action.kind);
  const said = action.replay ?? replay?.[kind];
  return {
    kind,
    payload: asObject(action.payload),
    references: asList(action.references).map((each) => ({ kind: asText(asObject(each).kind), id: asText(asObject(each).id) })),
    outputPath: typeof action._outputPath === "string" ? action._outputPath : undefined,
    outputMethod: typeof action._outputMethod === "string" ? action._outputMethod : undefined,
    replay: typeof said === "string" ? said : undefined,
  };
}

/** Return the variables in a value. */
export function variablesIn(value: unknown): string[] {
  if (typeof value === "string") return value.startsWith("†") ? [value] : [];
  if (typeof value !== "object" || value === null) return [];
  return Object.values(value).flatMap(variablesIn);
}

interface Row {
  change: ActionChange | undefined;
  index: number | undefined;
  action: TypedAction;
}

export function ActionTable(props: {
  actions: readonly TypedAction[];
  author: string;
  changes: readonly ActionChange[] | undefined;
  before: readonly TypedAction[];
  describe: (variable: string) => string | undefined;
}): ReactNode {
  const { actions, changes, before } = props;
  const rows = useMemo((): Row[] => {
    const byIndex = new Map(changes?.map((change) => [change.index, change]));
    const listed = actions.map((action, index) => ({ action, index, change: byIndex.get(index) }));
    const removed = (changes ?? []).flatMap((change) => {
      const action = change.change === "removed" && change.before !== undefined ? before[change.before] : undefined;
      return action ? [{ action, index: undefined, change }] : [];
    });
    return [...listed, ...removed];
  }, [actions, changes, before]);
  const scroller = useRef<HTMLDivElement>(null);
  const withReplay = rows.some((row) => row.action.replay !== undefined);
  const isLong = rows.length >= VIRTUAL_FROM;
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => 34,
    overscan: 12,
    useFlushSync: false,
    enabled: isLong,
  });
  const items = isLong ? virtual.getVirtualItems() : [];
  const [first, last] = [items[0], items.at(-1)];
  const shown = isLong ? items.map((item) => ({ row: rows[item.index], place: item.index })) : rows.map((row, place) => ({ row, place }));
  return (
    <div
      className="scroll"
      ref={scroller}
      style={isLong ? { maxHeight: "60vh", overflowY: "auto" } : {}}
      role="region"
      aria-label="Actions"
      tabIndex={0}
    >
      <table className="actions" aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            <th scope="col">#</th>
            <th scope="col">Action</th>
            <th scope="col">On</th>
            <th scope="col">
              Arguments
              <span className="written-by">
                <Sparkles aria-hidden size={11} /> written by <Safe text={props.author} limit={40} />
              </span>
            </th>
            {withReplay && <th scope="col">Replay</th>}
            {changes && <th scope="col">Change</th>}
          </tr>
        </thead>
        <tbody>
          {first && first.start > 0 && <tr style={{ height: first.start }} />}
          {shown.map(({ row, place }) =>
            row ? (
              <ActionRow
                key={place}
                row={row}
                describe={props.describe}
                withChange={changes !== undefined}
                withReplay={withReplay}
                measure={isLong ? virtual.measureElement : undefined}
                place={place}
              />
            ) : null,
          )}
          {last && last.end < virtual.getTotalSize() && <tr style={{ height: virtual.getTotalSize() - last.end }} />}
        </tbody>
      </table>
    </div>
  );
}

const ActionRow = memo(function ActionRow(props: {
  row: Row;
  describe: (variable: string) => string | undefined;
  withChange: boolean;
  withReplay: boolean;
  measure: ((element: Element | null) => void) | undefined;
  place: number;
}): ReactNode {
  const { action, change, index } = props.row;
  const removed = change?.change === "removed";
  const on = Object.entries(action.payload).flatMap(([name, value]) => [...new Set(variablesIn(value))].map((variable) => [name, variable] as const));
  const plain = Object.entries(action.payload).filter(([, value]) => !(typeof value === "string" && value.startsWith("†")));
  const fields = new Map((change?.fields ?? []).map((field) => [field.pointer, field]));
  const gone = (change?.fields ?? []).filter((field) => field.after === undefined);
  return (
    <tr
      id={index === undefined ? undefined : `action-${index}`}
      className={removed ? "removed" : undefined}
      ref={props.measure}
      data-index={props.place}
    >
      <td className="mono faint">{index ?? "–"}</td>
      <td>
        <b>{removed ? <del><Safe text={action.kind} limit={60} /></del> : <Safe text={action.kind} limit={60} />}</b>
        {action.outputPath && (
          <div className="meta">
            result to <span className="mono"><Safe text={action.outputPath} limit={80} /></span>
            {action.outputMethod && <> by <Safe text={action.outputMethod} limit={20} /></>}
          </div>
        )}
      </td>
      <td>
        {on.map(([name, variable]) => (
          <div key={`${name} ${variable}`}>
            <span className="mono faint"><Safe text={name} limit={40} /></span>{" "}
            <span className="mono variable"><Safe text={variable} limit={80} /></span>{" "}
            <span className="meta"><Safe text={props.describe(variable) ?? ""} limit={60} /></span>
          </div>
        ))}
        {action.references.map((reference) => (
          <div key={reference.id} className="mono">
            <Safe text={`${reference.kind} ${reference.id.slice(0, 8)}…${reference.id.slice(-4)}`} />
          </div>
        ))}
      </td>
      <td>
        {plain.map(([name, value]) => (
          <span className="argument" key={name}>
            <span className="mono name"><Safe text={name} limit={60} /></span>{" "}
            <Changed value={value} fields={fields} pointer={pointerBelow("/payload", name)} />
          </span>
        ))}
        {gone.map((field) => (
          <span className="argument" key={field.pointer}>
            <span className="mono name"><Safe text={pathOf(field.pointer, "/payload")} limit={80} /></span>{" "}
            <del><Inline value={field.before} /></del>
          </span>
        ))}
      </td>
      {props.withReplay && (
        <td>{action.replay === "never" ? <span className="tag warn">Never</span> : action.replay === "safe" ? "Safe" : null}</td>
      )}
      {props.withChange && <td>{change && <ChangeTag change={change} />}</td>}
    </tr>
  );
});

/** A value, with what it was before. A change inside of it is listed below the table. */
function Changed({ value, fields, pointer }: { value: unknown; fields: ReadonlyMap<string, FieldChange>; pointer: string }): ReactNode {
  const field = fields.get(pointer) ?? fields.get("/payload") ?? fields.get("");
  if (field) {
    return (
      <>
        {field.pointer === pointer && field.before !== undefined && <del><Inline value={field.before} /></del>}{" "}
        <ins><Inline value={value} /></ins>
      </>
    );
  }
  const isInside = [...fields.keys()].some((each) => each.startsWith(`${pointer}/`));
  return isInside ? <ins><Inline value={value} /></ins> : <Inline value={value} />;
}

export function ChangeTag({ change: { change, moved } }: { change: ActionChange }): ReactNode {
  if (change === "same") return <span className="tag same">Same</span>;
  return (
    <>
      <span className={`tag ${change}`}>{{ changed: "Changed", added: "Added", removed: "Removed" }[change]}</span>
      {moved && <span className="tag changed">Moved</span>}
    </>
  );
}

/** A field that differs: where, what it was, and what it is. */
export function FieldDifference({ field, base }: { field: FieldChange; base?: string }): ReactNode {
  return (
    <>
      <span className="mono faint"><Safe text={pathOf(field.pointer, base)} limit={120} /></span>{" "}
      {field.before !== undefined && <del><Inline value={field.before} /></del>}{" "}
      {field.after !== undefined && <ins><Inline value={field.after} /></ins>}
    </>
  );
}
