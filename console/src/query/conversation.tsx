// What was said and done, in the order of events: prose of models, calls, approvals, changes of plans.
import { Bot, Flag, ListTree, UserRound, Wrench } from "lucide-react";
import { useMemo, useState, type ReactNode } from "react";
import { Link } from "wouter";

import type { PlangateEvent, QueryView } from "../../../sdk/typescript/src/index.js";
import { Badge } from "../components.js";
import { time } from "../format.js";
import { Inline, Json, ModelText, Safe, ToolText } from "../text.js";

type Turn =
  | { kind: "text"; agent: string; at: string; text: string; key: string }
  | { kind: "call"; name: string; agent: string; at: string; args: unknown; result: unknown; error: string | undefined; state: string; key: string }
  | { kind: "note"; icon: "approval" | "plan"; at: string; text: string; href: string | undefined; status: string; label?: string | undefined; key: string };

const MOST_TURNS = 200;

/** Join events into turns: the pieces of one text, a call and its result. */
export function buildTurns(events: readonly PlangateEvent[]): Turn[] {
  const turns: Turn[] = [];
  const calls = new Map<string, Turn & { kind: "call" }>();
  let speaking: (Turn & { kind: "text" }) | undefined;
  for (const event of events) {
    if (event.type === "text") {
      const key = `${event.workId}:${event.turn}`;
      if (speaking?.key === key) speaking.text += event.text;
      else {
        speaking = { kind: "text", agent: event.agent ?? "", at: event.at, text: event.text, key };
        turns.push(speaking);
      }
      continue;
    }
    if (event.type === "step-retry" && speaking?.key === `${event.workId}:${event.turn}`) speaking.text = "";
    if (event.type === "tool-invocation") {
      // The ids of a model are unique among its own calls only.
      const id = `${event.workId}:${event.toolInvocationId}`;
      const known = calls.get(id);
      if (!known) {
        const call: Turn & { kind: "call" } = {
          kind: "call", name: event.toolName, agent: event.agent ?? "", at: event.at, args: event.args, result: event.result,
          error: event.error?.message, state: event.state, key: `${event.toolInvocationId}:${event.seq}`,
        };
        calls.set(id, call);
        turns.push(call);
      } else if (event.state !== "call") {
        known.state = event.state;
        known.result = event.result;
        known.error = event.error?.message;
      }
    } else if (event.type === "approval-required") {
      turns.push({ kind: "note", icon: "approval", at: event.at, text: "Approval needed", href: `/inbox/${event.data.id}`, status: "pending", key: `${event.seq}` });
    } else if (event.type === "approval-decision") {
      const outcome = { approve: "approved", reject: "rejected", revise: "revised", expired: "expired", cancelled: "cancelled" }[event.data.outcome.outcome];
      turns.push({ kind: "note", icon: "approval", at: event.at, text: event.data.decidedBy ? `by ${event.data.decidedBy}` : "", href: `/inbox/${event.data.id}`, status: outcome, key: `${event.seq}` });
    } else if (event.type === "plan-status-change") {
      turns.push({ kind: "note", icon: "plan", at: event.at, text: `Plan, revision ${event.data.revision}`, href: `/plans/${event.data.planId}`, status: event.data.to, label: event.data.label, key: `${event.seq}` });
    }
  }
  return turns;
}

export function Conversation({ query, events, streaming }: { query: QueryView; events: readonly PlangateEvent[]; streaming: boolean }): ReactNode {
  const turns = useMemo(() => buildTurns(events), [events]);
  const [all, setAll] = useState(false);
  const shown = all ? turns : turns.slice(-MOST_TURNS);
  const last = turns.at(-1);
  return (
    <section className="conversation" aria-label="Conversation">
      <div>
        <p className="speaker"><UserRound aria-hidden size={14} /> <b><Safe text={query.principal} limit={60} /></b> <span className="meta">{time(query.createdAt)}</span></p>
        <div className="prompt"><Safe text={query.prompt} limit={500} /></div>
      </div>
      {shown.length < turns.length && <button type="button" className="button" onClick={() => setAll(true)}>Show {turns.length - shown.length} earlier turns</button>}
      {shown.map((turn) => (
        <TurnView key={turn.key} turn={turn} streaming={streaming && turn === last} />
      ))}
      {query.error && <div className="note bad"><div><b>{query.error.code}</b> <Safe text={query.error.message} limit={1000} /></div></div>}
    </section>
  );
}

function TurnView({ turn, streaming }: { turn: Turn; streaming: boolean }): ReactNode {
  if (turn.kind === "text") {
    if (!turn.text) return null;
    return (
      <div>
        <p className="speaker"><Bot aria-hidden size={14} /> <b><Safe text={turn.agent} limit={60} /></b> <span className="meta">{time(turn.at)}</span></p>
        <ModelText by={`agent ${turn.agent}`} text={turn.text} streaming={streaming} />
      </div>
    );
  }
  if (turn.kind === "note") {
    const Icon = turn.icon === "plan" ? ListTree : Flag;
    return (
      <div className="call">
        <Icon aria-hidden size={14} /> <Badge status={turn.status} label={turn.label ?? null} /> <Safe text={turn.text} limit={100} />
        <span className="end meta">{turn.href && <Link href={turn.href} className="link">Open</Link>} {time(turn.at)}</span>
      </div>
    );
  }
  return <Call turn={turn} />;
}

function Call({ turn }: { turn: Turn & { kind: "call" } }): ReactNode {
  const [open, setOpen] = useState(false);
  const state = { call: "running", result: "succeeded", error: "failed" }[turn.state] ?? turn.state;
  return (
    <div>
      <div className="call">
        <Wrench aria-hidden size={14} />
        <button type="button" className="link" aria-expanded={open} onClick={() => setOpen(!open)}><Safe text={turn.name} limit={60} /></button>
        <span className="meta"><Safe text={turn.agent} limit={40} /></span>
        <span className="end"><Badge status={state} /> <span className="meta">{time(turn.at)}</span></span>
      </div>
      {open && (
        <div className="stack">
          <div className="model"><p className="by">Arguments, written by <Safe text={turn.agent} limit={40} /></p><Json value={turn.args} /></div>
          {turn.state === "result" && <ToolText from={`tool ${turn.name}`}>{typeof turn.result === "string" ? <p className="prose"><Safe text={turn.result} /></p> : <Json value={turn.result} />}</ToolText>}
          {turn.error && <ToolText from={`tool ${turn.name}`}><Inline value={turn.error} /></ToolText>}
        </div>
      )}
    </div>
  );
}
