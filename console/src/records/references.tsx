// References: stored values by their glimpses, and one value whole.
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link, useSearchParams } from "wouter";

import { listReferences, readReferenceGlimpse } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Empty, Facts, Loaded, usePageTitle } from "../components.js";
import { bytes, shortId, time } from "../format.js";
import { readPages } from "../inbox/data.js";
import { ReferenceCard } from "../inbox/values.js";
import { Safe, compact } from "../text.js";

export function ReferencesPage({ kind, id }: { kind: string | undefined; id: string | undefined }): ReactNode {
  return kind !== undefined && id !== undefined ? <One kind={kind} id={id} /> : <List />;
}

function List(): ReactNode {
  usePageTitle("References");
  const [parameters, setParameters] = useSearchParams();
  const kind = parameters.get("kind") ?? "";
  const [typed, setTyped] = useState(kind);
  const found = useQuery({
    queryKey: ["references", kind],
    queryFn: () => readPages(async (cursor) => (await listReferences(call({ query: { limit: 200, ...(kind && { kind }), ...(cursor !== undefined && { cursor }) } }))).data, 400),
  });
  return (
    <main className="page">
      <header><h1>References</h1></header>
      <form className="filters" onSubmit={(event) => { event.preventDefault(); setParameters(typed ? { kind: typed } : {}); }}>
        <label>Kind<input value={typed} onChange={(event) => setTyped(event.target.value)} /></label>
        <button className="button">Filter</button>
      </form>
      <Loaded what="list of references" query={found}>
        {(items) => items.length === 0 ? <Empty title={kind ? "No reference matches" : "There are no references yet"} filtered={kind !== ""} /> : (
          <div className="panel scroll">
            <table>
              <thead><tr><th scope="col">Kind</th><th scope="col">Id</th><th scope="col">Glimpse</th><th scope="col" className="number">Size</th><th scope="col" className="number">Created</th><th scope="col" className="number">Expires</th></tr></thead>
              <tbody>
                {items.map((item) => (
                  <tr key={`${item.kind}/${item.id}`}>
                    <td><Safe text={item.kind} limit={60} /></td>
                    <td><Link href={`/references/${encodeURIComponent(item.kind)}/${encodeURIComponent(item.id)}`} className="link">{shortId(item.id)}</Link></td>
                    <td className="mono"><Safe text={compact(item.glimpse)} limit={160} /></td>
                    <td className="number">{bytes(item.sizeBytes)}</td>
                    <td className="number">{time(item.createdAt)}</td>
                    <td className="number">{item.expiresAt ? time(item.expiresAt) : "pinned"}</td>
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

function One({ kind, id }: { kind: string; id: string }): ReactNode {
  usePageTitle("Reference");
  const found = useQuery({ queryKey: ["references", kind, id], queryFn: async () => (await readReferenceGlimpse(call({ path: { kind, id } }))).data });
  return (
    <main className="page">
      <div className="crumbs"><Link href="/references" className="link">References</Link> / <code>{shortId(id)}</code></div>
      <header><h1><Safe text={kind} limit={80} /></h1></header>
      <Loaded what="reference" query={found}>
        {(data) => (
          <>
            <Facts facts={[{ label: "Size", value: bytes(data.sizeBytes) }, { label: "Created", value: time(data.createdAt) }, { label: "Expires", value: data.expiresAt ? time(data.expiresAt) : "pinned" }]} />
            <ReferenceCard reference={data} />
          </>
        )}
      </Loaded>
    </main>
  );
}
