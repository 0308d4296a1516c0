// Runtimes: the list, and one runtime with its agents, prompts, tools and the rules that apply to each.
import { useQuery } from "@tanstack/react-query";
import { Suspense, lazy, useState, type ReactNode } from "react";
import { Link } from "wouter";

import { listAgentTools, listRuntimes, readRuntime, type AgentTool, type RuntimeView } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Badge, Empty, Facts, Loaded, Loading, Panel, TabPages, usePageTitle } from "../components.js";
import { count, duration, shortId, shortName, time } from "../format.js";
import { readPages } from "../inbox/data.js";
import { Json, Safe } from "../text.js";
import { AgentPrompt } from "./prompt.js";

const Diagram = lazy(() => import("../inbox/graph.js"));

export function RuntimesPage({ id }: { id: string | undefined }): ReactNode {
  return id === undefined ? <List /> : <One key={id} id={id} />;
}

export function useRuntimes(): ReturnType<typeof useQuery<Awaited<ReturnType<typeof readAll>>>> {
  return useQuery({ queryKey: ["runtimes"], queryFn: readAll });
}

async function readAll() {
  return readPages(async (cursor) => (await listRuntimes(call({ query: { limit: 200, ...(cursor !== undefined && { cursor }) } }))).data, 400);
}

function List(): ReactNode {
  usePageTitle("Runtimes");
  const found = useRuntimes();
  return (
    <main className="page">
      <header><h1>Runtimes</h1></header>
      <Loaded what="list of runtimes" query={found}>
        {(items) => items.length === 0 ? <Empty title="No runtime is registered"><p>Register one from a program, or with <code>POST /runtimes</code>.</p></Empty> : (
          <div className="panel scroll">
            <table>
              <thead><tr><th scope="col">Runtime</th><th scope="col" className="number">Version</th><th scope="col">Id</th><th scope="col">Status</th><th scope="col" className="number">Registered</th></tr></thead>
              <tbody>
                {items.map((item) => (
                  <tr key={item.id}>
                    <td><Link href={`/runtimes/${item.id}`} className="link"><Safe text={shortName(item.name)} /></Link></td>
                    <td className="number">{item.version}</td>
                    <td className="mono">{shortId(item.id)}</td>
                    <td><Badge status={item.retiredAt ? "withdrawn" : "active"} label={item.retiredAt ? "Retired" : "Active"} /></td>
                    <td className="number">{time(item.createdAt)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
    </main>
  );
}

function One({ id }: { id: string }): ReactNode {
  const runtime = useQuery({ queryKey: ["runtimes", id], queryFn: async () => (await readRuntime(call({ path: { runtime_id: id } }))).data });
  const [tab, setTab] = useState("agents");
  usePageTitle(runtime.data ? shortName(runtime.data.name) : "Runtime");
  return (
    <main className="page">
      <Loaded what="runtime" query={runtime}>
        {(data) => (
          <>
            <div className="crumbs"><Link href="/runtimes" className="link">Runtimes</Link> / <code>{shortId(id)}</code><span className="end"><Link href={`/try?runtime=${id}`} className="button">Try it</Link></span></div>
            <header><h1><Safe text={shortName(data.name)} /></h1></header>
            <Facts facts={[{ label: "Version", value: data.version }, { label: "Agents", value: data.spec.agents.length }, { label: "Tools", value: (data.spec.tools ?? []).length }, { label: "Plans", value: (data.spec.plans ?? []).length }, { label: "Registered", value: time(data.createdAt), ...(data.retiredAt && { note: `retired ${time(data.retiredAt)}` }) }]} />
            <TabPages
              label="Parts of the runtime"
              value={tab}
              onChange={setTab}
              pages={[
                { id: "agents", title: "Agents", count: data.spec.agents.length, content: () => <Agents runtime={data} /> },
                { id: "prompts", title: "Prompts", content: () => <Prompts runtime={data} /> },
                { id: "diagram", title: "Diagram", content: () => <Routes runtime={data} /> },
                { id: "spec", title: "Spec", content: () => <div className="panel body"><Json value={data.spec} /></div> },
              ]}
            />
          </>
        )}
      </Loaded>
    </main>
  );
}

function Routes({ runtime }: { runtime: RuntimeView }): ReactNode {
  const agents = runtime.spec.agents;
  const place = new Map(agents.map((agent, index) => [agent.name, index]));
  const edges = agents.flatMap((agent, from) => (agent.routes ?? []).flatMap((name) => { const to = place.get(name); return to === undefined ? [] : [{ from, to, path: "calls" }]; }));
  return (
    <Panel title="Agents and routes" note="which agent may call which">
      <Suspense fallback={<Loading what="the diagram" />}><Diagram nodes={agents.map((agent, index) => ({ index, kind: agent.name, mark: "" }))} edges={edges} /></Suspense>
    </Panel>
  );
}

function Agents({ runtime }: { runtime: RuntimeView }): ReactNode {
  return (
    <div className="stack">
      {runtime.spec.agents.map((agent) => (
        <Panel key={agent.name} title={<Safe text={agent.name} limit={80} />} note={`${agent.role}, ${typeof agent.model === "string" ? agent.model : agent.model.id}`}>
          <div className="body stack">
            {(agent.routes ?? []).length > 0 && <p>Calls <Safe text={(agent.routes ?? []).join(", ")} limit={400} /></p>}
            {agent.plan && <p>Plans of kind <b><Safe text={typeof agent.plan === "string" ? agent.plan : agent.plan.name} limit={80} /></b></p>}
            <Tools runtimeId={runtime.id} agent={agent.name} />
          </div>
        </Panel>
      ))}
    </div>
  );
}

const ORIGINS: Record<AgentTool["approvalOrigin"], string> = {
  "approvalOverrides.tools": "approvalOverrides.tools",
  tool: "the tool itself",
  "approvalOverrides.agents": "approvalOverrides.agents",
  approvalPolicies: "approvalPolicies",
  default: "the default",
  floor: "the floor of the tenant",
};

function Tools({ runtimeId, agent }: { runtimeId: string; agent: string }): ReactNode {
  const found = useQuery({ queryKey: ["runtimes", runtimeId, "tools", agent], staleTime: Infinity, queryFn: async () => (await listAgentTools(call({ path: { runtime_id: runtimeId, agent } }))).data.tools });
  return (
    <Loaded what="list of tools" query={found}>
      {(tools) => tools.length === 0 ? <p className="meta">No tools.</p> : (
        <div className="scroll">
          <table>
            <thead><tr><th scope="col">Tool</th><th scope="col">Description</th><th scope="col">Approval</th><th scope="col">Set by</th><th scope="col">Transport</th></tr></thead>
            <tbody>
              {tools.map((tool) => (
                <tr key={tool.name}>
                  <td><b><Safe text={tool.name} limit={80} /></b></td>
                  <td><Safe text={tool.description} limit={200} /></td>
                  <td><Rule tool={tool} /></td>
                  <td>{ORIGINS[tool.approvalOrigin]}</td>
                  <td>{tool.transport}{tool.toolkit && <span className="meta"> {tool.toolkit}</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Loaded>
  );
}

function Rule({ tool }: { tool: AgentTool }): ReactNode {
  const { kind, value, approvers, approvalExpiresInMs, rememberable } = tool.approval;
  if (kind === "never") return <span className="tag same">Never</span>;
  return (
    <>
      <span className="tag warn">{kind === "always" ? "Always" : <>When <Safe text={value ?? "the rule says so"} limit={80} /></>}</span>
      <span className="meta">
        {(approvers?.minimum ?? 1) > 1 && ` by ${count(approvers?.minimum ?? 1, "person", "people")}`}
        {approvers?.notRequester && ", not the requester"}
        {approvalExpiresInMs ? `, within ${duration(approvalExpiresInMs)}` : ""}
        {rememberable ? ", can be remembered" : ""}
      </span>
    </>
  );
}

/** The prompts as the models get them: all layers put together. */
function Prompts({ runtime }: { runtime: RuntimeView }): ReactNode {
  return (
    <div className="stack">
      {runtime.spec.agents.map((agent) => <AgentPrompt key={agent.name} runtimeId={runtime.id} agent={agent.name} />)}
    </div>
  );
}
