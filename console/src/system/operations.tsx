// Operations: outcomes that wait for a person, keys, remembered approvals, and open calls of tools.
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link } from "wouter";

import {
  listGrants, listKeys, listProcesses, listQueries, listTenants, listToolCalls, readTenant, revokeGrant, type TenantView, type WhoAmI,
} from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Badge, Empty, Facts, Loaded, Panel, useNow, usePageTitle } from "../components.js";
import { ago, bytes, count, duration, shortId, time, whole } from "../format.js";
import { readPages } from "../inbox/data.js";
import { DecisionError } from "../inbox/decide.js";
import { queries } from "../live.js";
import { Safe, compact } from "../text.js";

export function OperationsPage({ me }: { me: WhoAmI }): ReactNode {
  usePageTitle("Operations");
  const isAdmin = me.scopes.includes("admin");
  return (
    <main className="page">
      <header><h1>Operations</h1></header>
      <div className="stack">
        <Facts facts={[{ label: "Tenant", value: <Safe text={me.tenant} limit={60} /> }, { label: "Signed in as", value: <Safe text={me.principal} limit={60} />, ...(me.expiresAt && { note: `until ${time(me.expiresAt)}` }) }, { label: "Service", value: me.version }, { label: "Scopes", value: me.scopes.length, note: me.scopes.join(", ") }]} />
        {isAdmin && <Limits />}
        <QueriesByReason title="Unknown outcomes" note="they wait until a person settles them" reason="outcome_unknown" empty="No outcome is unknown" action="Settle…" tab="plans" />
        <QueriesByReason title="Queries that were set aside" note="each killed its process several times, and failed" reason="poisoned" empty="No query was set aside" action="Open" tab="overview" />
        <ToolCalls />
        <Grants />
        {isAdmin && <Keys />}
        {me.operator && <Tenants />}
        {me.operator && <Processes />}
      </div>
    </main>
  );
}

const LIMITS: Record<string, [string, (value: number) => string]> = {
  runningQueries: ["Running queries", whole],
  queuedQueries: ["Queued queries", whole],
  requestsPerSecond: ["Requests a second", whole],
  bytes: ["Files and artifacts", bytes],
  maxReferenceBytes: ["Size of one reference", bytes],
  openStreams: ["Open streams", whole],
  openStreamsPerKey: ["Open streams of one key", whole],
};

/** What a tenant uses of its limits, by the name of the limit. */
function used(tenant: TenantView): Record<string, number> {
  return { runningQueries: tenant.runningQueries, queuedQueries: tenant.queuedQueries, bytes: tenant.blobBytes };
}

function Limits(): ReactNode {
  const found = useQuery({ queryKey: ["tenant"], refetchInterval: 15_000, queryFn: async () => (await readTenant(call({}))).data });
  return (
    <Panel title="Limits and use" note="the operator changes limits with plangate tenants">
      <Loaded what="list of limits" query={found}>
        {(tenant) => (
          <>
            <p className="body">{count(tenant.waitingQueries, "query waits", "queries wait")}, {count(tenant.pendingApprovals, "approval is pending", "approvals are pending")}.</p>
            <table>
              <thead><tr><th scope="col">Limit</th><th scope="col" className="number">Used</th><th scope="col" className="number">At most</th><th scope="col"><span className="hidden-text">Share</span></th></tr></thead>
              <tbody>
                {[...new Set([...Object.keys(LIMITS), ...Object.keys(tenant.limits)])].map((name) => {
                  const [label, show] = LIMITS[name] ?? [name, whole];
                  const limit = tenant.limits[name] === undefined ? undefined : Number(tenant.limits[name]);
                  const use = used(tenant)[name];
                  return (
                    <tr key={name}>
                      <td>{label}</td>
                      <td className="number">{use === undefined ? "" : show(use)}</td>
                      <td className="number">{limit === undefined ? "No limit set" : show(limit)}</td>
                      <td>{use !== undefined && limit !== undefined && <span className="share"><i style={{ width: `${Math.min(Math.round((use / Math.max(limit, 1)) * 100), 100)}%` }} /></span>}</td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </>
        )}
      </Loaded>
    </Panel>
  );
}

function QueriesByReason(props: { title: string; note: string; reason: string; empty: string; action: string; tab: string }): ReactNode {
  const found = useQuery({
    queryKey: ["queries", "reason", props.reason],
    queryFn: () => readPages(async (cursor) => (await listQueries(call({ query: { reason: props.reason, limit: 100, ...(cursor !== undefined && { cursor }) } }))).data, 100),
  });
  return (
    <Panel title={props.title} note={props.note}>
      <Loaded what="list of queries" query={found}>
        {(items) => items.length === 0 ? <Empty title={props.empty} /> : (
          <table>
            <thead><tr><th scope="col">Query</th><th scope="col">Agent</th><th scope="col">Asked by</th><th scope="col">Error</th><th scope="col" className="number">Started</th><th scope="col"><span className="hidden-text">Open</span></th></tr></thead>
            <tbody>
              {items.map((item) => (
                <tr key={item.id}>
                  <td><Safe text={item.prompt.slice(0, 100)} /></td><td><Safe text={item.agent} limit={40} /></td><td><Safe text={item.principal} limit={40} /></td>
                  <td>{item.error && <Safe text={item.error.message} limit={200} />}</td>
                  <td className="number">{time(item.startedAt ?? item.createdAt)}</td>
                  <td><Link href={`/queries/${item.id}?tab=${props.tab}`} className="button">{props.action}</Link></td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Loaded>
    </Panel>
  );
}

function ToolCalls(): ReactNode {
  const found = useQuery({ queryKey: ["tool-calls"], refetchInterval: 10_000, queryFn: async () => (await listToolCalls(call({ query: { status: "open", limit: 100 } }))).data.items });
  return (
    <Panel title="Calls that no program has claimed">
      <Loaded what="list of calls" query={found}>
        {(items) => items.length === 0 ? <Empty title="No call waits for a program" /> : (
          <table>
            <thead><tr><th scope="col">Name</th><th scope="col">Purpose</th><th scope="col">Query</th><th scope="col" className="number">Attempts</th><th scope="col" className="number">Since</th></tr></thead>
            <tbody>{items.map((item) => <tr key={item.workId}><td><Safe text={item.name} limit={80} /></td><td>{item.purpose}</td><td><Link href={`/queries/${item.queryId}`} className="link">{shortId(item.queryId)}</Link></td><td className="number">{item.attempts}</td><td className="number">{time(item.createdAt)}</td></tr>)}</tbody>
          </table>
        )}
      </Loaded>
    </Panel>
  );
}

function Grants(): ReactNode {
  const [error, setError] = useState<unknown>();
  const found = useQuery({ queryKey: ["grants"], queryFn: async () => (await listGrants(call({ query: { active: true, limit: 100 } }))).data.items });
  return (
    <Panel title="Remembered approvals" note="calls that nobody is asked about">
      {error !== undefined && <DecisionError error={error} />}
      <Loaded what="list of remembered approvals" query={found}>
        {(items) => items.length === 0 ? <Empty title="Nothing is remembered" /> : (
          <table>
            <thead><tr><th scope="col">Tool</th><th scope="col">Agent</th><th scope="col">Arguments</th><th scope="col">Granted by</th><th scope="col" className="number">Expires</th><th scope="col"><span className="hidden-text">Revoke</span></th></tr></thead>
            <tbody>
              {items.map((item) => (
                <tr key={item.id}>
                  <td><Safe text={item.tool} limit={60} /></td><td><Safe text={item.agent} limit={40} /></td>
                  <td className="mono"><Safe text={compact(item.args)} limit={160} />{item.free.length > 0 && <> with any <Safe text={item.free.join(", ")} limit={80} /></>}</td>
                  <td><Safe text={item.grantedBy} limit={40} /></td><td className="number">{time(item.expiresAt)}</td>
                  <td><button type="button" className="button danger" onClick={() => void revokeGrant(call({ path: { grant_id: item.id } })).then(() => queries.invalidateQueries({ queryKey: ["grants"] })).catch(setError)}>Revoke</button></td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Loaded>
    </Panel>
  );
}

function Keys(): ReactNode {
  const found = useQuery({ queryKey: ["keys"], queryFn: async () => (await listKeys(call({ query: { limit: 100 } }))).data.items });
  return (
    <Panel title="API keys" note="plangate keys creates and revokes them">
      <Loaded what="list of keys" query={found}>
        {(items) => items.length === 0 ? <Empty title="This tenant has no keys" /> : (
          <div className="scroll">
            <table>
              <thead><tr><th scope="col">Key</th><th scope="col">Principal</th><th scope="col">Scopes</th><th scope="col">Status</th><th scope="col" className="number">Created</th><th scope="col" className="number">Expires</th></tr></thead>
              <tbody>
                {items.map((item) => (
                  <tr key={item.id}><td className="mono">{shortId(item.id)}</td><td><Safe text={item.principal} limit={60} /></td><td>{item.scopes.join(", ")}</td><td><Badge status={item.revokedAt ? "withdrawn" : "active"} label={item.revokedAt ? "Revoked" : "Active"} /></td><td className="number">{time(item.createdAt)}</td><td className="number">{item.expiresAt ? time(item.expiresAt) : "never"}</td></tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
    </Panel>
  );
}

function Tenants(): ReactNode {
  const found = useQuery({
    queryKey: ["operator", "tenants"],
    refetchInterval: 15_000,
    queryFn: () => readPages(async (cursor) => (await listTenants(call({ query: { limit: 200, ...(cursor !== undefined && { cursor }) } }))).data),
  });
  return (
    <Panel title="Tenants" note="of the whole installation, for its operator; plangate tenants changes them">
      <Loaded what="list of tenants" query={found}>
        {(items) => (
          <div className="scroll">
            <table>
              <thead><tr><th scope="col">Tenant</th><th scope="col" className="number">Running</th><th scope="col" className="number">Queued</th><th scope="col" className="number">Waiting</th><th scope="col" className="number">Approvals</th><th scope="col" className="number">Files</th><th scope="col">Limits</th><th scope="col" className="number">Created</th></tr></thead>
              <tbody>
                {items.map((item) => (
                  <tr key={item.id}>
                    <td><b><Safe text={item.id} limit={80} /></b></td>
                    <td className="number">{whole(item.runningQueries)}</td><td className="number">{whole(item.queuedQueries)}</td><td className="number">{whole(item.waitingQueries)}</td>
                    <td className="number">{whole(item.pendingApprovals)}</td><td className="number">{bytes(item.blobBytes)}</td>
                    <td><details><summary className="meta">Show</summary>{Object.entries(item.limits).map(([name, value]) => <div key={name}>{LIMITS[name]?.[0] ?? name}: {(LIMITS[name]?.[1] ?? whole)(Number(value))}</div>)}</details></td>
                    <td className="number">{time(item.createdAt)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
    </Panel>
  );
}

const SILENT_S = 30;

function Processes(): ReactNode {
  const now = useNow();
  const found = useQuery({ queryKey: ["operator", "processes"], refetchInterval: 15_000, queryFn: async () => (await listProcesses(call({}))).data.items });
  return (
    <Panel title="Processes" note="alive, or ended in the last hour">
      <Loaded what="list of processes" query={found}>
        {(items) => (
          <div className="scroll">
            <table>
              <thead><tr><th scope="col">Process</th><th scope="col">Health</th><th scope="col">Host</th><th scope="col" className="number">Running queries</th><th scope="col" className="number">Last heartbeat</th><th scope="col" className="number">Started</th></tr></thead>
              <tbody>
                {items.map((item) => (
                  <tr key={item.id}>
                    <td className="mono">{item.parentId === null ? "" : "↳ "}{item.pid} <span className="faint">{shortId(item.id)}</span></td>
                    <td>
                      {item.endedAt !== null ? <Badge status={item.endReason === "stopped" ? "withdrawn" : "failed"} label={{ stopped: "Stopped", died: "Died", presumed_dead: "Presumed dead" }[item.endReason ?? "stopped"]} />
                        : item.silentS > SILENT_S ? <Badge status="pending" label={`Silent for ${duration(item.silentS * 1000)}`} /> : <Badge status="active" label="Healthy" />}
                    </td>
                    <td><Safe text={item.host} limit={60} /></td>
                    <td className="number">{whole(item.runningQueries)}</td>
                    <td className="number">{item.endedAt === null ? ago(item.heartbeatAt, now) : `ended ${ago(item.endedAt, now)}`}</td>
                    <td className="number">{time(item.startedAt)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
    </Panel>
  );
}
