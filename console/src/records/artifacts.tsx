// Artifacts: the list, and one artifact with its content, decisions and lineage.
import { useQuery } from "@tanstack/react-query";
import { Suspense, lazy, type ReactNode } from "react";
import { Link } from "wouter";

import { listArtifacts, readArtifact, readArtifactLineage, type ArtifactInfo, type LineageView, type ListArtifactsData } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Badge, Empty, Facts, Loaded, Loading, Panel, usePageTitle } from "../components.js";
import { readFilters, useAddressFilters, useSettled } from "../filters.js";
import { bytes, shortId, shortName, time } from "../format.js";
import { readPages } from "../inbox/data.js";
import { ArtifactList } from "../query/pages.js";
import { Json, ModelText, Safe } from "../text.js";
import { Preview } from "./preview.js";

const Diagram = lazy(() => import("../inbox/graph.js"));

export function ArtifactsPage({ id }: { id: string | undefined }): ReactNode {
  return id === undefined ? <List /> : <One key={id} id={id} />;
}

const FILTERS = ["channel", "agent", "threadId", "queryId", "tag"] as const;
const LABELS = { channel: "Channel", agent: "Agent", threadId: "Thread", queryId: "Query", tag: "Tag" };

function List(): ReactNode {
  usePageTitle("Artifacts");
  const [parameters, filter] = useAddressFilters();
  const filters = useSettled<NonNullable<ListArtifactsData["query"]>>({ limit: 200, ...readFilters(parameters, FILTERS) });
  const found = useQuery({
    queryKey: ["artifacts", JSON.stringify(filters)],
    queryFn: () => readPages(async (cursor) => (await listArtifacts(call({ query: { ...filters, ...(cursor !== undefined && { cursor }) } }))).data, 400),
    placeholderData: (before) => before,
  });
  return (
    <main className="page">
      <header><h1>Artifacts</h1></header>
      <form className="filters" onSubmit={(event) => event.preventDefault()}>
        {FILTERS.map((name) => (
          <label key={name}>
            {LABELS[name]}
            <input value={parameters.get(name) ?? ""} onChange={(event) => filter({ [name]: event.target.value })} />
          </label>
        ))}
      </form>
      <ArtifactList query={found} />
    </main>
  );
}

function One({ id }: { id: string }): ReactNode {
  const artifact = useQuery({ queryKey: ["artifacts", id], queryFn: async () => (await readArtifact(call({ path: { artifact_id: id } }))).data });
  const lineage = useQuery({ queryKey: ["artifacts", id, "lineage"], queryFn: async () => (await readArtifactLineage(call({ path: { artifact_id: id } }))).data });
  usePageTitle(artifact.data ? shortName(artifact.data.title ?? artifact.data.path) : "Artifact");
  return (
    <main className="page">
      <div className="crumbs"><Link href="/artifacts" className="link">Artifacts</Link> / <code>{shortId(id)}</code></div>
      <Loaded what="artifact" query={artifact}>
        {(data) => (
          <div className="stack">
            <header className="page-head"><Badge status={data.status ?? "active"} /> <h1><Safe text={shortName(data.title ?? data.path, 100)} /></h1></header>
            <Facts
              facts={[
                { label: "Channel", value: <Safe text={data.channel} limit={40} />, note: <Safe text={data.kind} limit={40} /> },
                { label: "Made by", value: <Safe text={data.producer.agent ?? data.producer.kind} limit={40} />, ...(data.producer.queryId && { note: <Link href={`/queries/${data.producer.queryId}`} className="link">query {shortId(data.producer.queryId)}</Link> }) },
                { label: "Size", value: data.sizeBytes === null || data.sizeBytes === undefined ? "–" : bytes(data.sizeBytes), note: data.mediaType ?? "" },
                { label: "Published", value: time(data.createdAt) },
              ]}
            />
            {data.summary && <ModelText by={`agent ${data.producer.agent ?? "unknown"}, field summary`} text={data.summary} />}
            <Panel title="Content" note={<span className="mono"><Safe text={data.path} limit={120} /></span>}>
              {data.targetAvailable === false ? <Empty title="The content is gone" /> : data.isDirectory ? <Empty title="A folder"><p>Its files are read one by one over the API.</p></Empty> : (
                <Preview path={`artifacts/${encodeURIComponent(id)}/content`} name={data.path} sizeBytes={data.sizeBytes} from={`artifact ${data.path}`} />
              )}
            </Panel>
            <Loaded what="lineage" query={lineage}>{(found) => <Lineage found={found} />}</Loaded>
            {(data.decisions ?? []).length > 0 && (
              <Panel title="Decisions">
                <ul className="body">
                  {(data.decisions ?? []).map((each) => <li key={each.id}>{each.kind === "withdraw" ? "Withdrawn" : "Chosen"} {time(each.createdAt)}: <Safe text={each.reason} limit={400} /></li>)}
                </ul>
              </Panel>
            )}
            {data.metadata && <Panel title="Metadata"><div className="body model"><Json value={data.metadata} /></div></Panel>}
          </div>
        )}
      </Loaded>
    </main>
  );
}

/** Where an artifact comes from, and what was made from it. */
function Lineage({ found }: { found: LineageView }): ReactNode {
  const steps = [...found.ancestors, ...found.descendants];
  if (steps.length === 0) return null;
  const all: ArtifactInfo[] = [found.artifact, ...steps.map((step) => step.artifact)];
  const place = new Map(all.map((each, index) => [each.id, index]));
  const edges = all.flatMap((each, to) => [
    ...(each.parentArtifactIds ?? []).flatMap((parent) => { const from = place.get(parent); return from === undefined ? [] : [{ from, to, path: "parent" }]; }),
    ...(each.replaces ? [place.get(each.replaces)].flatMap((from) => (from === undefined ? [] : [{ from, to, path: "replaces" }])) : []),
  ]);
  return (
    <Panel title="Lineage" note={`${found.ancestors.length} before, ${found.descendants.length} after`}>
      <Suspense fallback={<Loading what="the diagram" />}>
        <Diagram nodes={all.map((each, index) => ({ index, kind: each.title ?? each.path, mark: index === 0 ? "changed" : "" }))} edges={edges} />
      </Suspense>
      <ul className="body">
        {steps.map((step) => (
          <li key={step.artifact.id}><Link href={`/artifacts/${step.artifact.id}`} className="link"><Safe text={step.artifact.title ?? step.artifact.path} limit={80} /></Link> <span className="meta"><Safe text={step.artifact.channel} limit={40} />, {time(step.artifact.createdAt)}</span></li>
        ))}
      </ul>
    </Panel>
  );
}
