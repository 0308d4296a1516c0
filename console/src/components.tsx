// The parts that all pages share: badges, timers, panels, facts, and the states of a page.
import * as Tabs from "@radix-ui/react-tabs";
import {
  AlertTriangle, Ban, Check, CircleHelp, Circle, CircleDot, Clock, Inbox, Pencil, SearchX, SkipForward, X,
  type LucideIcon,
} from "lucide-react";
import { Component, useEffect, useState, useSyncExternalStore, type ReactNode } from "react";

import { ROOT, RequestFailed, serverNow } from "./api.js";
import { visibleText } from "./characters.js";
import { timeLeft } from "./format.js";
import { Safe } from "./text.js";

type Tone = "plain" | "run" | "ok" | "warn" | "bad" | "lost";

const STATUS: Record<string, [LucideIcon, Tone, string]> = {
  queued: [Circle, "plain", "Queued"],
  pending: [Clock, "warn", "Pending"],
  pending_approval: [Clock, "warn", "Pending approval"],
  draft: [Circle, "plain", "Draft"],
  running: [CircleDot, "run", "Running"],
  executing: [CircleDot, "run", "Executing"],
  dispatched: [CircleDot, "run", "Dispatched"],
  waiting: [Clock, "warn", "Waiting"],
  succeeded: [Check, "ok", "Succeeded"],
  executed: [Check, "ok", "Executed"],
  approved: [Check, "ok", "Approved"],
  active: [Check, "ok", "Active"],
  failed: [X, "bad", "Failed"],
  rejected: [X, "bad", "Rejected"],
  revised: [Pencil, "plain", "Sent back"],
  replaced: [Pencil, "plain", "Replaced"],
  superseded: [Pencil, "plain", "Superseded"],
  expired: [Clock, "plain", "Expired"],
  cancelled: [Ban, "plain", "Canceled"],
  withdrawn: [Ban, "plain", "Withdrawn"],
  skipped: [SkipForward, "plain", "Skipped"],
  unknown: [CircleHelp, "lost", "Unknown"],
};

/** A status in shape, word and color. `label` is the alias that the runtime gives it. */
export function Badge({ status, label }: { status: string; label?: string | null }): ReactNode {
  const [Icon, tone, word] = STATUS[status] ?? [Circle, "plain" as const, status];
  const alias = label && label !== status ? label : undefined;
  return (
    <span className={`badge ${tone}`} title={alias ? word : undefined}>
      <Icon aria-hidden size={12} /> {alias ? <Safe text={alias} limit={40} /> : word}
    </span>
  );
}

// One clock for all timers.
let now = Date.now();
const ticks = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

/** The present by the clock of the service, updated every second. */
export function useNow(): number {
  return useSyncExternalStore(
    (tick) => {
      ticks.add(tick);
      timer ??= setInterval(() => {
        now = serverNow();
        for (const each of ticks) each();
      }, 1000);
      return () => {
        ticks.delete(tick);
        if (ticks.size === 0) {
          clearInterval(timer);
          timer = undefined;
        }
      };
    },
    () => now,
  );
}

/** How much time is left: amber below 30 minutes, red and by the second below 2. */
export function Timer({ until }: { until: string }): ReactNode {
  const left = Date.parse(until) - useNow();
  const tone = left < 120_000 ? "last" : left < 1_800_000 ? "soon" : "";
  return (
    <span className={`timer ${tone}`} aria-label={left > 0 ? `${timeLeft(left)} left` : "expired"}>
      <Clock aria-hidden size={13} /> {left > 0 ? timeLeft(left) : "Expired"}
    </span>
  );
}

export function Panel(props: {
  title: ReactNode;
  note?: ReactNode;
  end?: ReactNode;
  id?: string;
  className?: string;
  children: ReactNode;
}): ReactNode {
  return (
    <section className={`panel ${props.className ?? ""}`} id={props.id}>
      <header>
        <h2>{props.title}</h2>
        {props.note !== undefined && <span className="meta">{props.note}</span>}
        {props.end !== undefined && <span className="end">{props.end}</span>}
      </header>
      {props.children}
    </section>
  );
}

export interface Fact {
  label: ReactNode;
  value: ReactNode;
  unit?: ReactNode;
  note?: ReactNode;
  tone?: "warn" | "bad" | "lost";
}

export function Facts({ facts }: { facts: readonly Fact[] }): ReactNode {
  return (
    <dl className="facts">
      {facts.map((fact, index) => (
        <div key={index}>
          <dt>{fact.label}</dt>
          <dd className={`fact ${fact.tone ?? ""}`}>
            {fact.value} {fact.unit !== undefined && <span className="unit">{fact.unit}</span>}
          </dd>
          {fact.note !== undefined && <dd className="meta">{fact.note}</dd>}
        </div>
      ))}
    </dl>
  );
}

/** A choice between views of the same thing. */
export function Segments<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}): ReactNode {
  return (
    <div className="segments" role="group" aria-label={props.label}>
      {props.options.map(([value, label]) => (
        <button key={value} type="button" aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {label}
        </button>
      ))}
    </div>
  );
}

export interface TabPage {
  id: string;
  title: string;
  count?: number | undefined;
  content: () => ReactNode;
}

export function TabPages(props: {
  label: string;
  value: string;
  onChange: (id: string) => void;
  pages: readonly TabPage[];
}): ReactNode {
  return (
    <Tabs.Root value={props.value} onValueChange={props.onChange} className="tab-pages">
      <Tabs.List className="tabs" aria-label={props.label}>
        {props.pages.map((page) => (
          <Tabs.Trigger key={page.id} value={page.id}>
            {page.title} {page.count !== undefined && <span>{page.count}</span>}
          </Tabs.Trigger>
        ))}
      </Tabs.List>
      {props.pages.map((page) => (
        <Tabs.Content key={page.id} value={page.id} className="tab-page">
          {props.value === page.id && page.content()}
        </Tabs.Content>
      ))}
    </Tabs.Root>
  );
}

/** Gray lines while something loads, shown only if it takes longer than 200 ms. */
export function Loading({ what }: { what: string }): ReactNode {
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    const waiting = setTimeout(() => setSlow(true), 200);
    return () => clearTimeout(waiting);
  }, []);
  return (
    <div className="loading" role="status" aria-label={`Loading ${what}`}>
      {slow && [70, 90, 45, 80, 60].map((width) => <span key={width} className={`bone w${width}`} />)}
    </div>
  );
}

/** What could not be read or done, with the status and route. */
export function Failed(props: { what: string; error: unknown; onRetry?: () => void; nothing?: string }): ReactNode {
  const failed = props.error instanceof RequestFailed ? props.error : undefined;
  const reason = failed
    ? failed.status === undefined
      ? `No response from ${failed.route}.`
      : `${failed.status} from ${failed.route}: ${failed.message}`
    : String(props.error);
  return (
    <div className="state" role="alert">
      <AlertTriangle aria-hidden size={22} />
      <h2>{props.what}</h2>
      <p>
        <Safe text={reason} limit={600} /> {props.nothing}
      </p>
      {props.onRetry && (
        <button type="button" className="button" onClick={props.onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Empty(props: { title: string; children?: ReactNode; filtered?: boolean }): ReactNode {
  const Icon = props.filtered ? SearchX : Inbox;
  return (
    <div className="state">
      <Icon aria-hidden size={22} />
      <h2>{props.title}</h2>
      {props.children}
    </div>
  );
}

export function Note(props: { tone: "ok" | "warn" | "bad" | "lost" | "plain"; children: ReactNode; live?: boolean }): ReactNode {
  const Icon = { ok: Check, warn: AlertTriangle, bad: AlertTriangle, lost: CircleHelp, plain: Clock }[props.tone];
  return (
    <div className={`note ${props.tone}`} role={props.live ? "status" : undefined}>
      <Icon aria-hidden size={16} />
      <div>{props.children}</div>
    </div>
  );
}

/** Show loading, an error, or the data of a request. */
export function Loaded<T>(props: {
  what: string;
  query: { data: T | undefined; error: unknown; refetch: () => unknown };
  children: (data: T) => ReactNode;
}): ReactNode {
  const { data, error, refetch } = props.query;
  if (data !== undefined) return props.children(data);
  if (error) return <Failed what={`The ${props.what} could not be read`} error={error} onRetry={() => void refetch()} />;
  return <Loading what={props.what} />;
}

/** Set the title of the page while it is shown. */
export function usePageTitle(title: string): void {
  useEffect(() => {
    pageTitle = visibleText(title);
    showTitle();
  }, [title]);
}

let pageTitle = "Console";
let waiting = 0;

function showTitle(): void {
  document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${pageTitle} · Plangate`;
}

/** Show how many approvals this person can decide in the title and on the icon. */
export function showWaiting(value: number): void {
  if (value === waiting) return;
  waiting = value;
  showTitle();
  showIcon();
}

/** Set the icon by its whole address: the document's own link is relative to the address at which it was loaded. */
export function showIcon(): void {
  const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (icon) icon.href = new URL(`assets/favicon${waiting > 0 ? "-waiting" : ""}.svg`, ROOT).href;
}

/** Shows what went wrong in place of a page that cannot be rendered. */
export class ErrorBoundary extends Component<{ place: string; children: ReactNode }, { error: unknown }> {
  override state: { error: unknown } = { error: undefined };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override componentDidUpdate(before: { place: string }): void {
    if (before.place !== this.props.place && this.state.error !== undefined) this.setState({ error: undefined });
  }

  override render(): ReactNode {
    if (this.state.error === undefined) return this.props.children;
    return (
      <main className="page">
        <h1>This page cannot be shown</h1>
        <div className="state" role="alert">
          <AlertTriangle aria-hidden size={22} />
          <p>If the service was updated while this tab was open, load it again. <Safe text={String(this.state.error)} limit={300} /></p>
          <button type="button" className="button" onClick={() => location.reload()}>Load again</button>
        </div>
      </main>
    );
  }
}
