// The tree of work as a timeline: what took how long, how many tokens, and what it cost. Waits are collapsed.
import { Bot, ListTree, MessageSquare, Wrench } from "lucide-react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, useState, type ReactNode } from "react";

import type { PlangateEvent, WorkItem } from "../../../sdk/typescript/src/index.js";
import { visibleText } from "../characters.js";
import { Badge, Panel, Segments, useNow } from "../components.js";
import { duration, money, time, tokens } from "../format.js";
import { Safe } from "../text.js";

interface Interval {
  start: number;
  end: number;
}

interface Row {
  item: WorkItem;
  depth: number;
  calls: WorkItem[];
}

const COLLAPSED_SHARE = 0.04;
const VIRTUAL_FROM = 100;

/** Put the records in the order of their tree. Model calls fold into the row of their agent. */
export function buildRows(items: readonly WorkItem[]): Row[] {
  const below = new Map<string | null, WorkItem[]>();
  const known = new Set(items.map((item) => item.id));
  for (const item of items) {
    const parent = item.parentId !== null && known.has(item.parentId) ? item.parentId : null;
    below.set(parent, [...(below.get(parent) ?? []), item]);
  }
  const rows: Row[] = [];
  const add = (item: WorkItem, depth: number): void => {
    const children = below.get(item.id) ?? [];
    rows.push({ item, depth, calls: children.filter((child) => child.kind === "model_call") });
    for (const child of children) if (child.kind !== "model_call") add(child, depth + 1);
  };
  for (const root of below.get(null) ?? []) add(root, 0);
  return rows;
}

/** Return when the query waited for somebody. */
export function findWaits(events: readonly PlangateEvent[], now: number): Interval[] {
  const waits: Interval[] = [];
  let since: number | undefined;
  for (const event of events) {
    if (event.type !== "query-status") continue;
    if (event.to === "waiting") since = Date.parse(event.at);
    else if (since !== undefined) {
      waits.push({ start: since, end: Date.parse(event.at) });
      since = undefined;
    }
  }
  if (since !== undefined) waits.push({ start: since, end: Math.max(now, since) });
  return waits;
}

/** Return a function from a moment to its place between 0 and 1. With `collapse`, waits take little room. */
function scaleOf(whole: Interval, waits: readonly Interval[], collapse: boolean): (at: number) => number {
  const total = Math.max(whole.end - whole.start, 1);
  const waited = collapse ? waits.reduce((sum, wait) => sum + wait.end - wait.start, 0) : 0;
  const active = Math.max(total - waited, 1);
  const waitRoom = collapse ? waits.length * COLLAPSED_SHARE : 0;
  const unit = Math.max(1 - waitRoom, 0.2) / (collapse ? active : total);
  return (at) => {
    const moment = Math.min(Math.max(at, whole.start), whole.end);
    if (!collapse) return (moment - whole.start) * unit;
    let place = (moment - whole.start) * unit;
    for (const wait of waits) {
      if (moment <= wait.start) continue;
      const inside = Math.min(moment, wait.end) - wait.start;
      place -= inside * unit;
      place += (inside / Math.max(wait.end - wait.start, 1)) * COLLAPSED_SHARE;
    }
    return Math.min(Math.max(place, 0), 1);
  };
}

export function Timeline({ items, events }: { items: readonly WorkItem[]; events: readonly PlangateEvent[] }): ReactNode {
  const [mode, setMode] = useState<"collapse" | "real">("collapse");
  const now = useNow();
  const rows = useMemo(() => buildRows(items), [items]);
  const open = items.some((item) => item.endedAt === null);
  const ends = items.map((item) => (item.endedAt ? Date.parse(item.endedAt) : 0));
  const whole = {
    start: Math.min(...items.map((item) => Date.parse(item.startedAt))),
    end: Math.max(...ends, open ? now : 0),
  };
  const waits = findWaits(events, now);
  const place = scaleOf(whole, waits, mode === "collapse");
  const scroller = useRef<HTMLDivElement>(null);
  const isLong = rows.length > VIRTUAL_FROM;
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroller.current, estimateSize: () => 29, overscan: 15, enabled: isLong });
  const visible = isLong ? virtual.getVirtualItems() : [];
  const [first, last] = [visible[0], visible.at(-1)];
  const shown = isLong ? visible.flatMap((item) => rows[item.index] ?? []) : rows;
  const total = items.find((item) => item.kind === "query");
  return (
    <Panel
      title="Work"
      note={`${rows.length} of ${items.length} records; model calls are in the row of their agent`}
      end={
        <>
          <span className="legend"><i className="model_call" /> Model call</span>
          <span className="legend"><i className="tool_call" /> Tool or action</span>
          <span className="legend"><i className="waits" /> Waiting</span>
          <Segments label="Time scale" value={mode} onChange={setMode} options={[["collapse", "Collapse waits"], ["real", "Real time"]]} />
        </>
      }
    >
      <div ref={scroller} className="scroll" style={isLong ? { maxHeight: "60vh", overflowY: "auto" } : {}} role="region" aria-label="Timeline of the work" tabIndex={0}>
        <table className="timeline">
          <thead>
            <tr>
              <th scope="col">Record</th>
              <th scope="col">{Number.isFinite(whole.start) && time(new Date(whole.start).toISOString())}</th>
              <th scope="col" className="number">Time</th>
              <th scope="col" className="number">Tokens</th>
              <th scope="col" className="number">Cost</th>
            </tr>
          </thead>
          <tbody>
            {first && first.start > 0 && <tr style={{ height: first.start }} />}
            {shown.map((row) => (
              <WorkRow key={row.item.id} row={row} place={place} now={now} waits={row.item.kind === "query" ? waits : []} total={row.item === total ? items : undefined} />
            ))}
            {last && last.end < virtual.getTotalSize() && <tr style={{ height: virtual.getTotalSize() - last.end }} />}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

const ICONS = { query: MessageSquare, agent: Bot, plan_execution: ListTree } as const;

function WorkRow(props: { row: Row; place: (at: number) => number; now: number; waits: readonly Interval[]; total: readonly WorkItem[] | undefined }): ReactNode {
  const { row, place, now } = props;
  const { item, calls } = row;
  const Icon = ICONS[item.kind as keyof typeof ICONS] ?? Wrench;
  const own = props.total ?? [item, ...calls];
  const used = own.reduce((sum, each) => sum + (each.usage?.inputTokens ?? 0) + (each.usage?.outputTokens ?? 0), 0);
  const priced = own.filter((each) => typeof each.costUsd === "number");
  const cost = priced.reduce((sum, each) => sum + (each.costUsd ?? 0), 0);
  const end = item.endedAt ? Date.parse(item.endedAt) : now;
  const start = Date.parse(item.startedAt);
  return (
    <tr>
      <td style={{ paddingLeft: 12 + Math.min(row.depth, 8) * 14 }}>
        <Icon aria-hidden size={13} /> <b><Safe text={item.kind === "agent" ? item.agent : item.name} limit={50} /></b>{" "}
        {item.kind === "query" && <span className="meta"><Safe text={item.agent} limit={40} /></span>}{" "}
        {item.status !== "succeeded" && <Badge status={item.status} />}
      </td>
      <td className="bar-cell">
        <Bar kind={item.kind} status={item.status} start={place(start)} end={place(end)} title={`${item.name}, ${duration(end - start)}`} />
        {props.waits.map((wait) => <Bar key={wait.start} kind="waits" status="" start={place(wait.start)} end={place(wait.end)} title={`waited ${duration(wait.end - wait.start)}`} />)}
        {calls.map((each) => (
          <Bar key={each.id} kind="model_call" status={each.status} start={place(Date.parse(each.startedAt))} end={place(each.endedAt ? Date.parse(each.endedAt) : now)} title={`model call, ${each.durationMs === null ? "running" : duration(each.durationMs)}`} />
        ))}
      </td>
      <td className="number">{duration(end - start)}</td>
      <td className="number">{used > 0 ? tokens(used) : ""}</td>
      <td className="number">{priced.length > 0 ? money(cost) : ""}</td>
    </tr>
  );
}

function Bar({ kind, status, start, end, title }: { kind: string; status: string; start: number; end: number; title: string }): ReactNode {
  return <span className={`bar ${kind} ${status}`} style={{ left: `${start * 100}%`, width: `${Math.max(end - start, 0.003) * 100}%` }} title={visibleText(title)} />;
}
