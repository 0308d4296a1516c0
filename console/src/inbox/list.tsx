// The list of the inbox: what waits, those of one kind as one row, and what was decided in the meantime.
import { useVirtualizer } from "@tanstack/react-virtual";
import { Check, ListTree, Wrench } from "lucide-react";
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { Link } from "wouter";

import { readApproval, type ApprovalInfo } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { findDeceptions, visibleText } from "../characters.js";
import { Badge, Timer } from "../components.js";
import { count, money, shortName } from "../format.js";
import { onEvent, queries } from "../live.js";
import { Safe } from "../text.js";
import { actionKinds, approvalsOf, approversOf, kindOf, nameOf, revisionOf, useAskingQuery } from "./data.js";
import { firstNumber } from "./facts.js";

/** So many calls of one tool by one agent for one person are one row. */
const MANY = 3;
const MOST_GONE = 50;

export type Line =
  | { kind: "group"; text: string; end?: string | undefined }
  | { kind: "item"; approval: ApprovalInfo }
  | { kind: "many"; approvals: readonly [ApprovalInfo, ...ApprovalInfo[]] };

/** Return the address of a line below `/inbox`, or undefined for a heading. `query` is the filter, with its `?`. */
export function addressOf(line: Line, query: string): string | undefined {
  if (line.kind === "item") return `/inbox/${line.approval.id}${query}`;
  if (line.kind === "many") return togetherAddress(line.approvals, query);
  return undefined;
}

export function togetherAddress(approvals: readonly ApprovalInfo[], query: string): string {
  const parameters = new URLSearchParams(query);
  parameters.set("together", approvals.map((each) => each.id).join(","));
  return `/inbox?${parameters}`;
}

/** Return whether a line has one of the approvals that are open. */
export function hasOne(line: Line, open: ReadonlySet<string>): boolean {
  if (line.kind === "item") return open.has(line.approval.id);
  return line.kind === "many" && line.approvals.some((each) => open.has(each.id));
}

/** Keep the order of what is listed while the pointer is over it; new items are added at the end until it leaves. */
export function useSteadyOrder(items: readonly ApprovalInfo[], hold: boolean): ApprovalInfo[] {
  const order = useRef<string[]>([]);
  const byId = new Map(items.map((item) => [item.id, item]));
  const known = hold ? order.current.flatMap((id) => byId.get(id) ?? []) : [];
  const next = hold ? [...known, ...items.filter((item) => !order.current.includes(item.id))] : [...items];
  useEffect(() => {
    order.current = next.map((item) => item.id);
  });
  return next;
}

/** What this page listed, and was decided since: it stays listed, grayed. */
export function useGoneWhileHere(open: readonly ApprovalInfo[]): ApprovalInfo[] {
  const seen = useRef(new Set<string>());
  const [gone, setGone] = useState<ApprovalInfo[]>([]);
  useEffect(() => {
    for (const item of open) seen.current.add(item.id);
  }, [open]);
  useEffect(
    () => onEvent((event) => {
      if (event.type !== "approval-decision" || !seen.current.has(event.data.id)) return;
      const { id } = event.data;
      queries
        .fetchQuery({ queryKey: ["approval", id], staleTime: 0, queryFn: async () => (await readApproval(call({ path: { approval_id: id } }))).data })
        .then((read) => read.status !== "pending" && setGone((before) => [read, ...before.filter((each) => each.id !== id)].slice(0, MOST_GONE)))
        .catch(() => undefined); // the list without it is right, too
    }),
    [],
  );
  return gone;
}

/** Return the kinds of which there are many. While the pointer is over the list, no rows are joined. */
function useKindsOfMany(items: readonly ApprovalInfo[], hold: boolean): ReadonlySet<string> {
  const before = useRef<ReadonlySet<string>>(new Set());
  const counts = new Map<string, number>();
  for (const item of items) if (item.kind === "tool") counts.set(kindOf(item), (counts.get(kindOf(item)) ?? 0) + 1);
  const many = hold ? before.current : new Set([...counts].filter(([, number]) => number >= MANY).map(([kind]) => kind));
  useEffect(() => {
    before.current = many;
  });
  return many;
}

/** Put what waits into lines: those that expire today first. */
export function useLines(items: readonly ApprovalInfo[], show: string, gone: readonly ApprovalInfo[], hold: boolean): Line[] {
  const many = useKindsOfMany(items, hold);
  if (show === "decided") return items.map((approval) => ({ kind: "item" as const, approval }));
  const tomorrow = new Date().setHours(24, 0, 0, 0);
  const joined = new Set<string>();
  const today: Line[] = [];
  const later: Line[] = [];
  for (const approval of items) {
    const lines = Date.parse(approval.expiresAt) < tomorrow ? today : later;
    const kind = kindOf(approval);
    if (!many.has(kind)) lines.push({ kind: "item", approval });
    else if (!joined.has(kind)) {
      joined.add(kind);
      lines.push({ kind: "many", approvals: [approval, ...items.filter((each) => each !== approval && kindOf(each) === kind)] });
    }
  }
  const open = `${items.length} open`;
  return [
    ...group("Expires first", today, open),
    ...group(today.length > 0 ? "Later than today" : "Expires first", later, today.length > 0 ? undefined : open),
    ...group("Decided while you were here", gone.map((approval) => ({ kind: "item", approval }))),
  ];
}

function group(text: string, lines: readonly Line[], end?: string): Line[] {
  return lines.length > 0 ? [{ kind: "group", text, end }, ...lines] : [];
}

interface LinesProps {
  lines: readonly Line[];
  /** The approvals that are open beside the list. */
  open: ReadonlySet<string>;
  query: string;
  chosen: ReadonlySet<string>;
  onToggle: (item: ApprovalInfo) => void;
}

export function Lines(props: LinesProps): ReactNode {
  const { lines, open } = props;
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => document.getElementById("approvals"),
    estimateSize: (index) => (lines[index]?.kind === "group" ? 30 : 74),
    getItemKey: (index) => {
      const line = lines[index];
      if (line?.kind === "many") return `many ${kindOf(line.approvals[0])}`;
      return line?.kind === "item" ? line.approval.id : `group ${line?.text}`;
    },
    overscan: 10,
  });
  const current = lines.findIndex((line) => hasOne(line, open));
  useEffect(() => {
    if (current >= 0) virtual.scrollToIndex(current);
    // Only when another one is opened: the list must not jump when items come and go.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [[...open].join()]);
  return (
    <ul className="virtual" style={{ height: virtual.getTotalSize() }}>
      {virtual.getVirtualItems().map((item) => {
        const line = lines[item.index];
        return (
          <li key={item.key} ref={virtual.measureElement} data-index={item.index} style={{ position: "absolute", width: "100%", transform: `translateY(${item.start}px)` }}>
            {line?.kind === "group" && <p className="group"><span>{line.text}</span><span>{line.end}</span></p>}
            {line?.kind === "many" && <Many approvals={line.approvals} current={item.index === current} query={props.query} />}
            {line?.kind === "item" && (
              <Entry approval={line.approval} current={item.index === current} query={props.query} chosen={props.chosen.has(line.approval.id)} choosing={props.chosen.size > 0} onToggle={props.onToggle} />
            )}
          </li>
        );
      })}
    </ul>
  );
}

/** Many calls of one tool by one agent for one person. */
function Many({ approvals, current, query }: { approvals: readonly [ApprovalInfo, ...ApprovalInfo[]]; current: boolean; query: string }): ReactNode {
  const [first] = approvals;
  const name = nameOf(first);
  return (
    <div className="entry" aria-current={current ? "true" : undefined}>
      <Wrench aria-hidden size={15} />
      <div>
        <p className="top">
          <Link href={togetherAddress(approvals, query)} title={visibleText(name)}><b><Safe text={shortName(name, 26)} /></b> × {approvals.length}</Link>
          <Timer until={first.expiresAt} />
        </p>
        <p className="about"><span><Safe text={first.agent ?? ""} limit={40} /> for <Safe text={first.requestedBy ?? ""} limit={40} /></span></p>
        <p className="about"><b>{count(approvals.length, "call")} of one kind</b> <span className="accent">Review together</span></p>
      </div>
    </div>
  );
}

function Entry(props: { approval: ApprovalInfo; current: boolean; query: string; chosen: boolean; choosing: boolean; onToggle: (item: ApprovalInfo) => void }): ReactNode {
  const { approval } = props;
  const pending = approval.status === "pending";
  const Icon = !pending ? Check : approval.kind === "plan" ? ListTree : Wrench;
  const kinds = actionKinds(approval);
  const minimum = approversOf(approval).minimum;
  const name = nameOf(approval);
  const query = useAskingQuery(approval.queryId, pending).data;
  const fact = firstNumber(approval.glimpses?.facts);
  const strange = useMemo(() => findDeceptions(approval.glimpses ?? {}).length > 0, [approval.glimpses]);
  return (
    <div className={`entry ${pending ? "" : "decided"}`} aria-current={props.current ? "true" : undefined}>
      {props.choosing && pending ? (
        <input type="checkbox" checked={props.chosen} aria-label={`Choose ${shortName(name)}`} onChange={() => props.onToggle(approval)} />
      ) : (
        <Icon aria-hidden size={15} />
      )}
      <div>
        <p className="top">
          <Link href={`/inbox/${approval.id}${props.query}`} title={visibleText(name)}><b><Safe text={shortName(name, 30)} /></b></Link>
          {revisionOf(approval) !== undefined && <span className="meta">rev {revisionOf(approval)}</span>}
          {pending && <Timer until={approval.expiresAt} />}
        </p>
        <p className="about">
          <span><Safe text={approval.agent ?? ""} limit={40} /> for <Safe text={approval.requestedBy ?? ""} limit={40} /></span>
        </p>
        <p className="about">
          {pending ? (
            <>
              <b>{approval.kind === "plan" ? count(kinds.length, "action") : "1 call"}</b>
              {(approval.waitingParents ?? 0) > 0 && <b>blocks {count(approval.waitingParents ?? 0, "agent")}</b>}
              {fact && <span title={visibleText(fact.label)}><Safe text={fact.text} limit={40} /></span>}
              {query && query.costUsd !== null && query.costUsd > 0 && <span title="Cost so far">{money(query.costUsd)}</span>}
              {minimum > 1 && <b>{approvalsOf(approval)} of {minimum} votes</b>}
            </>
          ) : (
            <><Badge status={approval.status} /> {approval.decidedBy && <>by <Safe text={approval.decidedBy} limit={40} /></>}</>
          )}
          {strange && pending && <span className="tag warn">Hidden or look-alike characters</span>}
        </p>
      </div>
    </div>
  );
}

