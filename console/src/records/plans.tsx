// Plans: the list, and one plan with its actions, graph, revisions and transitions.
import { useQuery } from "@tanstack/react-query";
import { Suspense, lazy, useMemo, useState, type ReactNode } from "react";
import { Link } from "wouter";

import { listPlans, listPlanTransitions, readPlan, readPlanGraph, type ListPlansData } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Badge, Empty, Facts, Loaded, Loading, Panel, TabPages, usePageTitle } from "../components.js";
import { readFilters, useAddressFilters, useSettled } from "../filters.js";
import { shortId, shortName, time } from "../format.js";
import { ActionTable, parseAction } from "../inbox/actions.js";
import { usePlanChanges } from "../inbox/changes.js";
import { asList, readPages, useRevisionBody, useRevisions, type Revision } from "../inbox/data.js";
import { ChangeList } from "../inbox/detail.js";
import { parseFacts } from "../inbox/facts.js";
import { CopyButton } from "../inbox/values.js";
import { PlanPanel } from "../query/pages.js";
import { Json, ModelText, Safe } from "../text.js";

const PlanGraph = lazy(() => import("../inbox/graph.js"));
const STATUSES = ["draft", "approved", "executing", "executed", "failed"] as const;

export function PlansPage(): ReactNode {
  usePageTitle("Plans");
  const [parameters, filter] = useAddressFilters();
  const filters = useSettled({ limit: 200, ...readFilters(parameters, ["status", "specName", "threadId"]) } as NonNullable<ListPlansData["query"]>);
  const plans = useQuery({
    queryKey: ["plans", JSON.stringify(filters)],
    queryFn: () => readPages(async (cursor) => (await listPlans(call({ query: { ...filters, ...(cursor !== undefined && { cursor }) } }))).data, 400),
    placeholderData: (before) => before,
  });
  const set = (name: string, value: string) => filter({ [name]: value });
  return (
    <main className="page">
      <header><h1>Plans</h1></header>
      <form className="filters" onSubmit={(event) => event.preventDefault()}>
        <label>
          Status
          <select value={parameters.get("status") ?? ""} onChange={(event) => set("status", event.target.value)}>
            <option value="">Any</option>
            {STATUSES.map((each) => <option key={each}>{each}</option>)}
          </select>
        </label>
        <label>Kind of plan<input value={parameters.get("specName") ?? ""} onChange={(event) => set("specName", event.target.value)} /></label>
        <label>Thread<input value={parameters.get("threadId") ?? ""} placeholder="thr_…" onChange={(event) => set("threadId", event.target.value)} /></label>
      </form>
      <Loaded what="list of plans" query={plans}>
        {(items) =>
          items.length === 0 ? (
            <Empty title={parameters.size > 0 ? "No plan matches" : "There are no plans yet"} filtered={parameters.size > 0} />
          ) : (
            <div className="panel scroll">
              <table>
                <thead><tr><th scope="col">Status</th><th scope="col">Plan</th><th scope="col" className="number">Revision</th><th scope="col" className="number">Actions</th><th scope="col">Query</th><th scope="col" className="number">Updated</th></tr></thead>
                <tbody>
                  {items.map((plan) => (
                    <tr key={plan.id}>
                      <td><Badge status={plan.status} label={plan.label} /></td>
                      <td><Link href={`/plans/${plan.id}`} className="link"><Safe text={shortName(plan.specName)} /></Link> <span className="meta">{plan.key && <Safe text={plan.key} limit={40} />}</span></td>
                      <td className="number">{plan.revision}</td>
                      <td className="number">{asList(plan.body.actions).length}</td>
                      <td>{plan.queryId && <Link href={`/queries/${plan.queryId}`} className="link">{shortId(plan.queryId)}</Link>}</td>
                      <td className="number">{time(plan.updatedAt)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )
        }
      </Loaded>
    </main>
  );
}

export function PlanPage({ id }: { id: string }): ReactNode {
  const plan = useQuery({ queryKey: ["plan", id], queryFn: async () => (await readPlan(call({ path: { plan_id: id } }))).data });
  const revisions = useRevisions(id);
  const [tab, setTab] = useState("actions");
  usePageTitle(plan.data ? shortName(plan.data.specName) : "Plan");
  const body = useRevisionBody(id, plan.data?.revision).data;
  const actions = useMemo(() => asList(body?.actions).map((action) => parseAction(action)), [body]);
  return (
    <main className="page">
      <Loaded what="plan" query={plan}>
        {(data) => (
          <>
            <div className="crumbs"><Link href="/plans" className="link">Plans</Link> / <code>{shortId(id)}</code><span className="end"><CopyButton label="Copy link" text={() => location.href} /></span></div>
            <header><Badge status={data.status} label={data.label} /> <h1><Safe text={shortName(data.specName)} /></h1></header>
            <Facts
              facts={[
                { label: "Revision", value: data.revision, note: data.revisionStatus === "revised" ? "sent back" : data.revisionStatus },
                { label: "Actions", value: actions.length },
                { label: "Query", value: data.queryId ? <Link href={`/queries/${data.queryId}`} className="link">{shortId(data.queryId)}</Link> : "–" },
                { label: "Thread", value: <Link href={`/threads/${data.threadId}`} className="link">{shortId(data.threadId)}</Link> },
                { label: "Created", value: time(data.createdAt) },
              ]}
            />
            {data.facts && data.facts.length > 0 && <Facts facts={parseFacts(data.facts)} />}
            <TabPages
              label="Parts of the plan"
              value={tab}
              onChange={setTab}
              pages={[
                {
                  id: "actions",
                  title: "Actions",
                  content: () => (
                    <div className="stack">
                      <PlanPanel planId={id} me={undefined} />
                      <Panel title="Proposed actions" note={`revision ${data.revision}`}>
                        <ActionTable actions={actions} author="the model" changes={undefined} before={[]} describe={() => undefined} />
                      </Panel>
                      {Object.entries(body ?? {}).map(([field, value]) => field !== "actions" && typeof value === "string" && <ModelText key={field} by={`field ${field}`} text={value} />)}
                      {data.feedback && <Panel title="Feedback"><p className="body"><Safe text={data.feedback} /></p></Panel>}
                    </div>
                  ),
                },
                { id: "graph", title: "Graph", content: () => <Graph planId={id} /> },
                { id: "revisions", title: "Revisions", count: revisions.data?.length, content: () => <Loaded what="list of revisions" query={revisions}>{(items) => <Revisions planId={id} items={items} />}</Loaded> },
                { id: "history", title: "History", content: () => <Transitions planId={id} /> },
              ]}
            />
          </>
        )}
      </Loaded>
    </main>
  );
}

function Graph({ planId }: { planId: string }): ReactNode {
  const graph = useQuery({ queryKey: ["plan", planId, "graph"], queryFn: async () => (await readPlanGraph(call({ path: { plan_id: planId } }))).data });
  return (
    <Panel title="Graph" note="What runs at the same time, and what waits for what">
      <Loaded what="graph" query={graph}>
        {(data) => (
          <Suspense fallback={<Loading what="the graph" />}>
            <PlanGraph nodes={data.nodes.map((node) => ({ index: node.index, kind: node.kind, mark: node.status ?? "" }))} edges={data.edges} />
            {data.edgesLeftOut > 0 && <p className="body meta">{data.edgesLeftOut} more edges are not drawn.</p>}
          </Suspense>
        )}
      </Loaded>
    </Panel>
  );
}

function Revisions({ planId, items }: { planId: string; items: readonly Revision[] }): ReactNode {
  return (
    <div className="stack">
      {[...items].reverse().map((revision) => (
        <Panel key={revision.revision} title={`Revision ${revision.revision}`} note={time(revision.storedAt)} end={<Badge status={revision.status} />}>
          {revision.feedback && <p className="body"><b>Feedback:</b> “<Safe text={revision.feedback} limit={2000} />”</p>}
          {revision.revision > 1 && <RevisionChanges planId={planId} revision={revision.revision} />}
          <RevisionBody planId={planId} revision={revision.revision} />
        </Panel>
      ))}
    </div>
  );
}

/** The body of a revision, which is read once it is opened. */
function RevisionBody({ planId, revision }: { planId: string; revision: number }): ReactNode {
  const [opened, setOpened] = useState(false);
  const body = useRevisionBody(planId, opened ? revision : undefined);
  return (
    <details className="body" onToggle={(event) => setOpened(opened || event.currentTarget.open)}>
      <summary className="meta">The plan as JSON</summary>
      {opened && <Loaded what="revision" query={body}>{(value) => <div className="model"><Json value={value} /></div>}</Loaded>}
    </details>
  );
}

function RevisionChanges({ planId, revision }: { planId: string; revision: number }): ReactNode {
  const changes = usePlanChanges(planId, revision - 1, revision);
  return (
    <Loaded what="list of changes" query={changes}>
      {({ actions, context }) => <ChangeList changes={actions.filter((each) => each.change !== "same")} context={context} from={revision - 1} />}
    </Loaded>
  );
}

function Transitions({ planId }: { planId: string }): ReactNode {
  const found = useQuery({ queryKey: ["plan", planId, "transitions"], queryFn: () => readPages(async (cursor) => (await listPlanTransitions(call({ path: { plan_id: planId }, query: { limit: 500, ...(cursor !== undefined && { cursor }) } }))).data) });
  return (
    <Loaded what="history" query={found}>
      {(items) => (
        <div className="panel scroll">
          <table>
            <thead><tr><th scope="col">At</th><th scope="col">Status</th><th scope="col" className="number">Revision</th><th scope="col">By</th><th scope="col">Approval</th></tr></thead>
            <tbody>
              {items.map((each, index) => (
                <tr key={index}>
                  <td>{time(each.at)}</td>
                  <td>{each.from && <><Badge status={each.from} /> → </>}<Badge status={each.to} /></td>
                  <td className="number">{each.revision}</td>
                  <td><Safe text={each.by} limit={60} /></td>
                  <td>{each.approvalId && <Link href={`/inbox/${each.approvalId}`} className="link">{shortId(each.approvalId)}</Link>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Loaded>
  );
}
