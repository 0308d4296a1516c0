// The raw journal of a query: a virtual list with search, each event with a link.
import { useVirtualizer } from "@tanstack/react-virtual";
import { Search } from "lucide-react";
import { memo, useCallback, useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import { parseExact, type PlangateEvent } from "../../../sdk/typescript/src/index.js";
import { Empty, Panel } from "../components.js";
import { jsonOf } from "../exact.js";
import { useAddressFilters } from "../filters.js";
import { exactTime, shortId, whole } from "../format.js";
import { asObject } from "../inbox/data.js";
import { CopyButton } from "../inbox/values.js";
import { Json, Safe, compact } from "../text.js";

const GROUPS: Record<string, RegExp> = {
  "All types": /^/,
  Gates: /^approval-/,
  Actions: /^(action|plan)-/,
  Calls: /^tool-/,
  Text: /^(text|reasoning)$/,
  Work: /^(work|step|data)-/,
};

/** Say in one line what an event is about. */
export function summarize(event: PlangateEvent): string {
  switch (event.type) {
    case "text":
    case "reasoning":
      return event.text;
    case "query-status":
      return [`${event.from ?? "new"} → ${event.to}`, event.reason, event.limit].filter(Boolean).join(", ");
    case "tool-invocation":
      return `${event.toolName}: ${event.state}${event.error ? `, ${event.error.message}` : ""}`;
    case "tool-progress":
      return `${event.toolName}: ${event.label}`;
    case "tool-agent":
      return `${event.agentName}: ${event.state}`;
    case "plan-status-change":
      return `revision ${event.data.revision}: ${event.data.from ?? "new"} → ${event.data.to}`;
    case "action-status-change":
      return `action ${event.data.index} ${event.data.kind}: ${event.data.from ?? "new"} → ${event.data.to}`;
    case "approval-required":
      return `${event.data.kind} ${event.data.target}, expires ${exactTime(event.data.expiresAt)}`;
    case "approval-decision":
      return `${event.data.outcome.outcome}${event.data.decidedBy ? `, decided by ${event.data.decidedBy}` : ""}`;
    case "state-write":
      return `${event.data.path}, ${event.data.method}, write ${event.data.write}`;
    case "reference-created":
      return `${event.data.kind} ${event.data.id}, ${event.data.sizeBytes} bytes`;
    case "artifact-published":
      return `${event.data.channel}: ${event.data.title ?? event.data.path}`;
    case "artifact-decision":
      return `${event.data.kind} ${event.data.artifactId}: ${event.data.reason}`;
    case "work-start":
    case "work-end":
      return `${event.data.kind} ${event.data.name}: ${event.data.status}`;
    case "finish":
      return event.finishReason;
    case "error":
      return `${event.error.code}: ${event.error.message}`;
    default:
      return "data" in event ? compact(asObject(parseExact(jsonOf(event))).data).slice(0, 200) : "";
  }
}

export function Journal({ events, following, ended }: { events: readonly PlangateEvent[]; following: boolean; ended: boolean }): ReactNode {
  const [parameters, filter] = useAddressFilters();
  const search = parameters.get("find") ?? "";
  const group = parameters.get("types") ?? "All types";
  const target = Number(parameters.get("seq") ?? 0);
  const [open, setOpen] = useState<ReadonlySet<number>>(() => new Set(target ? [target] : []));
  const toggle = useCallback((seq: number) => setOpen((before) => {
    const next = new Set(before);
    if (!next.delete(seq)) next.add(seq);
    return next;
  }), []);
  const scroller = useRef<HTMLDivElement>(null);
  const found = useMemo(() => {
    const words = search.toLowerCase().trim();
    const pattern = GROUPS[group] ?? /^/;
    const listed = events.filter((event) => pattern.test(event.type) && (!words || `${event.seq} ${jsonOf(event)}`.toLowerCase().includes(words)));
    return listed.reverse();
  }, [events, search, group]);
  const virtual = useVirtualizer({
    count: found.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => 27,
    getItemKey: (index) => found[index]?.seq ?? index,
    overscan: 20,
    useFlushSync: false, // a frame may be late; the scroll must not wait for it
  });
  const targetIndex = found.findIndex((event) => event.seq === target);
  const scrolled = useRef(false);
  useEffect(() => {
    if (scrolled.current || targetIndex < 0) return;
    scrolled.current = true;
    virtual.scrollToIndex(targetIndex, { align: "center" });
  }, [targetIndex, virtual]);
  return (
    <Panel
      title="Journal"
      className="journal"
      note={`${whole(found.length)} of ${whole(events.length)} events, newest first`}
      end={<span className={`live ${following ? "live" : "connecting"}`}>{following ? "Following" : ended ? "Complete" : "Not following"}</span>}
    >
      <div className="body row">
        <label className="search">
          <span className="hidden-text">Search text or seq</span>
          <Search aria-hidden size={14} />
          <input type="search" placeholder="Search text or seq" value={search} onChange={(event) => filter({ find: event.target.value })} />
        </label>
        <span className="chips" role="group" aria-label="Types">
          {Object.keys(GROUPS).map((name) => (
            <button key={name} type="button" className="chip" aria-pressed={group === name} onClick={() => filter({ types: name === "All types" ? "" : name })}>{name}</button>
          ))}
        </span>
      </div>
      <div className="line head" aria-hidden>
        <span>seq</span><span>at</span><span>type</span><span>agent</span><span>what</span><span>work</span>
      </div>
      <div className="scroller" ref={scroller} role="region" aria-label="Events" tabIndex={0}>
        {found.length === 0 && <Empty title={events.length === 0 ? "No events yet" : "No event matches"} filtered={events.length > 0} />}
        <ol className="virtual" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const event = found[item.index];
            if (!event) return null;
            return (
              <li key={item.key} ref={virtual.measureElement} data-index={item.index} style={{ position: "absolute", width: "100%", transform: `translateY(${item.start}px)` }}>
                <Line event={event} target={event.seq === target} open={open.has(event.seq)} onToggle={toggle} />
              </li>
            );
          })}
        </ol>
      </div>
    </Panel>
  );
}

const Line = memo(function Line({ event, target, open, onToggle }: { event: PlangateEvent; target: boolean; open: boolean; onToggle: (seq: number) => void }): ReactNode {
  const written = event.type === "text" || event.type === "reasoning";
  return (
    <>
      <div className={`line ${target ? "target" : ""}`}>
        <span className="mono faint">{event.seq}</span>
        <span className="mono faint">{exactTime(event.at)}</span>
        <button type="button" className="mono" aria-expanded={open} onClick={() => onToggle(event.seq)}>{event.type}</button>
        <span><Safe text={event.agent ?? ""} limit={40} /></span>
        <span className={written ? "written" : undefined}><Safe text={summarize(event).slice(0, 300)} limit={300} /></span>
        <span className="mono faint">{event.workId ? shortId(event.workId) : ""}</span>
      </div>
      {open && (
        <div className="raw">
          <CopyButton label="Copy link" text={() => { const url = new URL(location.href); url.searchParams.set("tab", "journal"); url.searchParams.set("seq", String(event.seq)); return url.href; }} />
          <Json value={parseExact(jsonOf(event))} />
        </div>
      )}
    </>
  );
});
