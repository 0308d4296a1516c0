// The list of queries, and the page of one query.
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";
import { Link, useLocation, useSearchParams } from "wouter";

import {
  cancelQuery, forkThread, listArtifacts, listPlanActions, listQueries, listQueryWork, readPlan, readQuery, resumeQuery,
  settleAction,
  type ListQueriesData, type PlangateEvent, type QuerySummary, type QueryView, type WhoAmI, type WorkItem,
} from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Badge, Empty, Facts, Loaded, Loading, Note, Panel, TabPages, useNow, usePageTitle, type Fact } from "../components.js";
import { readFilters, useAddressFilters, useSettled } from "../filters.js";
import { ago, bytes, count, duration, money, shortId, shortName, time, tokens } from "../format.js";
import { readPages } from "../inbox/data.js";
import { DecisionError } from "../inbox/decide.js";
import { CopyButton } from "../inbox/values.js";
import { queries } from "../live.js";
import { State } from "../records/state.js";
import { Json, ModelText, Safe } from "../text.js";
import { Conversation } from "./conversation.js";
import { useQueryEvents } from "./events.js";
import { Journal } from "./journal.js";
import { Prompts } from "./prompts.js";
import { Timeline, findWaits } from "./timeline.js";

const STATUSES = ["queued", "running", "waiting", "succeeded", "failed", "cancelled"] as const;
const FILTERS = ["status", "text", "runtime", "runtimeId", "agent", "threadId", "principal", "from", "to"] as const;
type Filters = NonNullable<ListQueriesData["query"]>;

export function QueriesPage(): ReactNode {
  usePageTitle("Queries");
  const [parameters, filter] = useAddressFilters();
  const status = parameters.get("status");
  const settled = useSettled({ limit: 200, ...readFilters(parameters, FILTERS) } as Filters);
  const list = useQuery({
    queryKey: ["queries", JSON.stringify(settled)],
    queryFn: () => readPages(async (cursor) => (await listQueries(call({ query: { ...settled, ...(cursor !== undefined && { cursor }) } }))).data, 400),
    placeholderData: (before) => before,
  });
  const set = (name: string, value: string) => filter({ [name]: value });
  const isFiltered = parameters.size > 0;
  return (
    <main className="page">
      <header><h1>Queries</h1></header>
      <form className="filters" onSubmit={(event) => event.preventDefault()}>
        <label>
          Search
          <input type="search" value={parameters.get("text") ?? ""} placeholder="Text of the prompt" onChange={(event) => set("text", event.target.value)} />
        </label>
        <label>
          Status
          <select value={status ?? ""} onChange={(event) => set("status", event.target.value)}>
            <option value="">Any</option>
            {STATUSES.map((each) => <option key={each} value={each}>{each === "cancelled" ? "canceled" : each}</option>)}
          </select>
        </label>
        <label>Agent<input value={parameters.get("agent") ?? ""} onChange={(event) => set("agent", event.target.value)} /></label>
        <label>Asked by<input value={parameters.get("principal") ?? ""} onChange={(event) => set("principal", event.target.value)} /></label>
        <label>Runtime<input value={parameters.get("runtime") ?? ""} placeholder="name" onChange={(event) => set("runtime", event.target.value)} /></label>
        <label>Thread<input value={parameters.get("threadId") ?? ""} placeholder="thr_…" onChange={(event) => set("threadId", event.target.value)} /></label>
        <label>From<input type="date" value={parameters.get("from") ?? ""} onChange={(event) => set("from", event.target.value)} /></label>
        <label>To<input type="date" value={parameters.get("to") ?? ""} onChange={(event) => set("to", event.target.value)} /></label>
      </form>
      <Loaded what="list of queries" query={list}>
        {(items) => {
          if (items.length === 0) {
            return isFiltered
              ? <Empty title="No query matches" filtered><button type="button" className="button" onClick={() => filter(Object.fromEntries(FILTERS.map((name) => [name, ""])))}>Clear filters</button></Empty>
              : <Empty title="There are no queries yet"><p>Start one under <Link href="/try" className="link">Try it</Link>.</p></Empty>;
          }
          return <QueryTable items={items} />;
        }}
      </Loaded>
    </main>
  );
}

export function QueryTable({ items }: { items: readonly QuerySummary[] }): ReactNode {
  const now = useNow();
  return (
    <div className="panel scroll">
      <table>
        <thead>
          <tr>
            <th scope="col">Status</th><th scope="col">Prompt</th><th scope="col" className="wide">Agent</th><th scope="col">Asked by</th>
            <th scope="col" className="number">Started</th><th scope="col" className="number wide">Time</th><th scope="col" className="number">Cost</th>
          </tr>
        </thead>
        <tbody>
          {items.map((item) => {
            const end = item.endedAt ? Date.parse(item.endedAt) : now;
            return (
              <tr key={item.id}>
                <td><Badge status={item.status} /></td>
                <td><Link href={`/queries/${item.id}`} className="link"><Safe text={item.prompt.slice(0, 140) || shortId(item.id)} /></Link></td>
                <td className="wide"><Safe text={item.agent} limit={40} /></td>
                <td><Safe text={item.principal} limit={40} /></td>
                <td className="number">{ago(item.createdAt, now)}</td>
                <td className="number wide">{item.startedAt ? duration(end - Date.parse(item.startedAt)) : ""}</td>
                <td className="number">{item.costUsd === null ? "–" : money(item.costUsd)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

export function QueryPage({ id, me }: { id: string; me: WhoAmI }): ReactNode {
  const query = useQuery({ queryKey: ["query", id], queryFn: async () => (await readQuery(call({ path: { query_id: id } }))).data });
  usePageTitle(query.data ? shortName(query.data.prompt, 40) : "Query");
  return (
    <main className="page">
      <Loaded what="query" query={query}>{(data) => <Opened query={data} me={me} />}</Loaded>
    </main>
  );
}

function Opened({ query, me }: { query: QueryView; me: WhoAmI }): ReactNode {
  const [parameters, setParameters] = useSearchParams();
  const [, navigate] = useLocation();
  const [error, setError] = useState<unknown>();
  const { events, following, error: streamError } = useQueryEvents(query.id);
  const work = useQuery({ queryKey: ["query", query.id, "work"], queryFn: async () => (await listQueryWork(call({ path: { query_id: query.id } }))).data.items });
  const artifacts = useQuery({
    queryKey: ["query", query.id, "artifacts"],
    queryFn: async () => (await listArtifacts(call({ query: { queryId: query.id, includeSuperseded: true, limit: 100 } }))).data.items,
  });
  const planIds = [...new Set(events.flatMap((event) => (event.type === "plan-status-change" ? [event.data.planId] : [])))];
  if (query.planId && !planIds.includes(query.planId)) planIds.push(query.planId);
  const tab = parameters.get("tab") ?? "overview";
  const ended = query.endedAt !== null;
  const title = query.prompt.trimStart().startsWith("{") ? `${query.agent}: ${shortName(query.prompt, 48)}` : shortName(query.prompt, 160);
  const act = (action: () => Promise<unknown>) => {
    setError(undefined);
    action().then(() => queries.invalidateQueries({ queryKey: ["query", query.id] })).catch(setError);
  };
  return (
    <>
      <div className="crumbs">
        <Link href="/queries" className="link">Queries</Link> / <code>{shortId(query.id)}</code>
        <span className="end">
          <CopyButton label="Copy link" text={() => location.href} />
          <button type="button" className="button" onClick={() => act(async () => {
            const fork = (await forkThread(call({ path: { thread_id: query.threadId }, body: {} }))).data;
            navigate(`/threads/${fork.id}`);
          })}>Fork thread</button>
          {!ended && <CancelButton onCancel={() => act(() => cancelQuery(call({ path: { query_id: query.id } })))} />}
        </span>
      </div>
      <header><Badge status={query.status} /> <h1><Safe text={title} /></h1></header>
      {error !== undefined && <DecisionError error={error} />}
      <QueryFacts query={query} work={work.data ?? []} events={events} />
      <Waiting query={query} me={me} onError={setError} />
      <TabPages
        label="Parts of the query"
        value={tab}
        onChange={(next) => setParameters((before) => { const p = new URLSearchParams(before); if (next === "overview") p.delete("tab"); else p.set("tab", next); return p; }, { replace: true })}
        pages={[
          {
            id: "overview",
            title: "Overview",
            content: () => (
              <div className="overview">
                <Conversation query={query} events={events} streaming={following && query.status === "running"} />
                <div className="stack">
                  {work.data && work.data.length > 0 && <Timeline items={work.data} events={events} />}
                  {planIds.map((plan) => <PlanPanel key={plan} planId={plan} queryId={query.id} me={me} />)}
                  {query.output !== null && query.output !== undefined && (
                    <Panel title="Output"><div className="body">{typeof query.output === "string" ? <ModelText by={`agent ${query.agent}, output`} text={query.output} /> : <div className="model"><Json value={query.output} /></div>}</div></Panel>
                  )}
                </div>
              </div>
            ),
          },
          { id: "plans", title: "Plans", count: planIds.length, content: () => planIds.length > 0 ? <div className="stack">{planIds.map((plan) => <PlanPanel key={plan} planId={plan} queryId={query.id} me={me} />)}</div> : <Empty title="This query has no plan" /> },
          { id: "artifacts", title: "Artifacts", count: artifacts.data?.length, content: () => <ArtifactList query={artifacts} /> },
          { id: "journal", title: "Journal", count: events.length, content: () => <Journal events={events} following={following} ended={ended} /> },
          { id: "state", title: "State", count: events.filter((event) => event.type === "state-write").length, content: () => <State id={query.threadId} queryId={query.id} /> },
          {
            id: "prompts",
            title: "Prompts",
            count: work.data?.filter((item) => item.kind === "model_call").length,
            content: () => <Loaded what="work of the query" query={work}>{(items) => <Prompts query={query} work={items} />}</Loaded>,
          },
          { id: "inputs", title: "Inputs", content: () => <Inputs query={query} /> },
        ]}
      />
      {streamError !== undefined && !ended && <Note tone="warn" live>The stream of this query ended. Reload the page to follow it again.</Note>}
    </>
  );
}

function CancelButton({ onCancel }: { onCancel: () => void }): ReactNode {
  const [sure, setSure] = useState(false);
  if (!sure) return <button type="button" className="button danger" onClick={() => setSure(true)}>Cancel query…</button>;
  return (
    <>
      <button type="button" className="button danger" onClick={() => { setSure(false); onCancel(); }}>Cancel the query now</button>
      <button type="button" className="button" onClick={() => setSure(false)}>Keep it running</button>
    </>
  );
}

function QueryFacts({ query, work, events }: { query: QueryView; work: readonly WorkItem[]; events: readonly PlangateEvent[] }): ReactNode {
  const now = useNow();
  const start = Date.parse(query.startedAt ?? query.createdAt);
  const end = query.endedAt ? Date.parse(query.endedAt) : now;
  const waited = findWaits(events, now).reduce((sum, wait) => sum + wait.end - wait.start, 0);
  const usage = query.usage;
  const cached = usage.cacheReadTokens ?? 0;
  const references = work.flatMap((item) => item.references ?? []);
  const keptOut = references.reduce((sum, each) => sum + Math.max(each.sizeBytes - each.promptBytes, 0), 0);
  const unknown = work.filter((item) => item.kind === "action" && item.status === "unknown").length;
  const facts: Fact[] = [
    { label: "Asked by", value: <Safe text={query.principal} limit={40} />, note: <Link href={`/threads/${query.threadId}`} className="link">thread {shortId(query.threadId)}</Link> },
    { label: query.endedAt ? "Took" : "Elapsed", value: duration(Math.max(end - start, 0)), ...(waited > 0 && { note: `${duration(waited)} of it waiting` }) },
    { label: "Cost", value: query.costUsd === null ? "No price" : money(query.costUsd), note: count(work.filter((item) => item.kind === "model_call").length, "model call") },
    { label: "Tokens", value: tokens((usage.inputTokens ?? 0) + (usage.outputTokens ?? 0)), ...(cached > 0 && { note: `${tokens(cached)} from cache` }) },
    { label: "Kept out of prompts", value: bytes(keptOut), note: count(references.length, "use of references", "uses of references") },
  ];
  const approvals = query.openApprovals.length;
  if (unknown > 0) facts.push({ label: "Needs a person", value: unknown, unit: unknown === 1 ? "action to settle" : "actions to settle", tone: "lost" });
  else if (approvals > 0) facts.push({ label: "Needs a person", value: approvals, unit: approvals === 1 ? "approval" : "approvals", tone: "warn" });
  return <Facts facts={facts} />;
}

/** Why a query waits, and what a person can do about it. */
function Waiting({ query, me, onError }: { query: QueryView; me: WhoAmI; onError: (error: unknown) => void }): ReactNode {
  if (query.status !== "waiting") return null;
  const canWrite = me.scopes.some((scope) => scope === "queries:write" || scope === "admin");
  const isLimit = query.reason !== null && query.reason !== "approval" && query.reason.includes("limit");
  return (
    <Note tone="warn">
      <b>Waiting{query.reason ? `: ${query.reason.replaceAll("_", " ")}` : ""}.</b>{" "}
      {query.openApprovals.map((approval) => <Link key={approval} href={`/inbox/${approval}`} className="link">Review the approval</Link>)}
      {isLimit && canWrite && <ResumeForm id={query.id} onError={onError} />}
    </Note>
  );
}

const LIMITS = [["maxTurns", "Turns"], ["maxTokens", "Tokens"], ["maxCostUsd", "Cost in USD"], ["maxDurationMs", "Duration in ms"]] as const;

function ResumeForm({ id, onError }: { id: string; onError: (error: unknown) => void }): ReactNode {
  function resume(event: FormEvent<HTMLFormElement>): void {
    event.preventDefault();
    const entries = [...new FormData(event.currentTarget)].filter(([, value]) => value !== "").map(([name, value]) => [name, Number(value)]);
    resumeQuery(call({ path: { query_id: id }, body: { limits: Object.fromEntries(entries) as Record<string, number> } }))
      .then(() => queries.invalidateQueries({ queryKey: ["query", id] }))
      .catch(onError);
  }
  return (
    <form className="filters" onSubmit={resume}>
      {LIMITS.map(([name, label]) => <label key={name}>{label}<input name={name} type="number" min="0" step="any" /></label>)}
      <button className="button primary">Resume with these limits</button>
    </form>
  );
}

/** A plan with the live status of its actions. */
export function PlanPanel({ planId, queryId, me }: { planId: string; queryId?: string; me: WhoAmI | undefined }): ReactNode {
  const plan = useQuery({ queryKey: ["plan", planId], queryFn: async () => (await readPlan(call({ path: { plan_id: planId } }))).data });
  const actions = useQuery({ queryKey: ["plan", planId, "actions", queryId], queryFn: () => readPages(async (cursor) => (await listPlanActions(call({ path: { plan_id: planId }, query: { limit: 500, ...(cursor !== undefined && { cursor }) } }))).data) });
  const [error, setError] = useState<unknown>();
  if (!plan.data) return <Panel title="Plan"><Loading what="the plan" /></Panel>;
  const items = actions.data ?? [];
  const done = items.filter((item) => item.status === "succeeded").length;
  const unknown = items.filter((item) => item.status === "unknown");
  const canSettle = me?.scopes.some((scope) => scope === "plans:settle" || scope === "admin") ?? false;
  return (
    <Panel
      title="Plan"
      note={<><Link href={`/plans/${planId}`} className="link"><Safe text={plan.data.specName} limit={60} /></Link>, revision {plan.data.revision}</>}
      end={<><Badge status={plan.data.status} label={plan.data.label} />{items.length > 0 && <span className="meta">{done} of {items.length} done</span>}</>}
    >
      {error !== undefined && <DecisionError error={error} />}
      {unknown.map((action) => (
        <Settle key={action.index} planId={planId} index={action.index} kind={action.kind} allowed={canSettle} onError={setError} />
      ))}
      {items.length === 0 ? (
        <p className="body meta">No action was started yet.</p>
      ) : (
        <div className="scroll">
          <table>
            <thead><tr><th scope="col">#</th><th scope="col">Action</th><th scope="col">Status</th><th scope="col">Result</th></tr></thead>
            <tbody>
              {items.slice(0, 500).map((action) => (
                <tr key={action.index}>
                  <td className="mono faint">{action.index}</td>
                  <td><b><Safe text={action.kind} limit={60} /></b></td>
                  <td><Badge status={action.status} /> {action.attempts > 1 && <span className="meta">{count(action.attempts, "attempt")}</span>}</td>
                  <td>
                    {action.result !== null && <details><summary className="meta">Show the result</summary><div className="model"><Json value={action.result} /></div></details>}
                    {action.error !== null && <span className="written mono"><Safe text={typeof action.error === "string" ? action.error : JSON.stringify(action.error)} limit={400} /></span>}
                    {action.settledBy && <span className="meta">settled by <Safe text={action.settledBy} limit={40} /></span>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function Settle(props: { planId: string; index: number; kind: string; allowed: boolean; onError: (error: unknown) => void }): ReactNode {
  const [open, setOpen] = useState(false);
  const settle = (outcome: "succeeded" | "failed" | "retry") =>
    settleAction(call({ path: { plan_id: props.planId, index: props.index }, body: { outcome } }))
      .then(() => queries.invalidateQueries({ queryKey: ["plan", props.planId] }))
      .catch(props.onError);
  return (
    <Note tone="lost">
      <b>Action {props.index} <Safe text={props.kind} limit={60} /> has an unknown outcome.</b> The plan waits until a person settles it.{" "}
      {props.allowed && !open && <button type="button" className="button" onClick={() => setOpen(true)}>Settle…</button>}
      {open && (
        <span className="row">
          <button type="button" className="button" onClick={() => void settle("succeeded")}>It took effect</button>
          <button type="button" className="button" onClick={() => void settle("failed")}>It had no effect</button>
          <button type="button" className="button" onClick={() => void settle("retry")}>Send it again</button>
          <button type="button" className="button quiet" onClick={() => setOpen(false)}>Keep it open</button>
        </span>
      )}
    </Note>
  );
}

export function ArtifactList({ query }: { query: { data: { id: string; title?: string | null; path: string; channel: string; kind: string; sizeBytes?: number | null; createdAt: string; status?: string; producer: { agent?: string | null } }[] | undefined; error: unknown; refetch: () => unknown } }): ReactNode {
  return (
    <Loaded what="list of artifacts" query={query}>
      {(items) =>
        items.length === 0 ? <Empty title="No artifacts" /> : (
          <div className="panel scroll">
            <table>
              <thead><tr><th scope="col">Title</th><th scope="col">Channel</th><th scope="col">Agent</th><th scope="col">Kind</th><th scope="col">Status</th><th scope="col" className="number">Size</th><th scope="col" className="number">Published</th></tr></thead>
              <tbody>
                {items.map((item) => (
                  <tr key={item.id}>
                    <td><Link href={`/artifacts/${item.id}`} className="link"><Safe text={item.title ?? item.path} limit={100} /></Link></td>
                    <td><Safe text={item.channel} limit={40} /></td>
                    <td><Safe text={item.producer.agent ?? ""} limit={40} /></td>
                    <td><Safe text={item.kind} limit={40} /></td>
                    <td><Badge status={item.status ?? "active"} /></td>
                    <td className="number">{item.sizeBytes === null || item.sizeBytes === undefined ? "" : bytes(item.sizeBytes)}</td>
                    <td className="number">{time(item.createdAt)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )
      }
    </Loaded>
  );
}

function Inputs({ query }: { query: QueryView }): ReactNode {
  return (
    <div className="stack">
      <Panel title="Prompt"><div className="body"><Safe text={query.prompt} /></div></Panel>
      {query.inputs && <Panel title="Inputs"><div className="body"><Json value={query.inputs} /></div></Panel>}
      {query.metadata && <Panel title="Metadata"><div className="body"><Json value={query.metadata} /></div></Panel>}
    </div>
  );
}
