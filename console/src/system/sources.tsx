// Data sources and the catalog of what they contain.
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { listCatalogEntries, listSources, searchCatalog } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Badge, Empty, Loaded, Panel, usePageTitle } from "../components.js";
import { time } from "../format.js";
import { Json, Safe } from "../text.js";

export function SourcesPage(): ReactNode {
  usePageTitle("Sources");
  const sources = useQuery({ queryKey: ["sources"], queryFn: async () => (await listSources(call({ query: { limit: 200 } }))).data.items });
  return (
    <main className="page">
      <header><h1>Sources and catalog</h1></header>
      <Loaded what="list of sources" query={sources}>
        {(items) => items.length === 0 ? <Empty title="No data source is registered" /> : (
          <div className="panel scroll">
            <table>
              <thead><tr><th scope="col">Source</th><th scope="col">Kind</th><th scope="col">Profile</th><th scope="col" className="number">Tables</th><th scope="col" className="number">Columns</th><th scope="col" className="number">Profiled</th></tr></thead>
              <tbody>
                {items.map((item) => (
                  <tr key={item.name}>
                    <td><b><Safe text={item.name} limit={80} /></b></td>
                    <td>{item.kind}</td>
                    <td><Badge status={item.profile.status} label={item.profile.status === "none" ? "Not profiled" : null} /></td>
                    <td className="number">{item.profile.found?.tables ?? ""}</td>
                    <td className="number">{item.profile.found?.columns ?? ""}</td>
                    <td className="number">{item.profile.profiledAt ? time(item.profile.profiledAt) : ""}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
      <Catalog />
    </main>
  );
}

function Catalog(): ReactNode {
  const [typed, setTyped] = useState("");
  const [search, setSearch] = useState("");
  const tables = useQuery({ queryKey: ["catalog", "tables"], enabled: search === "", queryFn: async () => (await listCatalogEntries(call({ query: { kind: "table", limit: 200 } }))).data.items });
  const found = useQuery({ queryKey: ["catalog", "search", search], enabled: search !== "", queryFn: async () => (await searchCatalog(call({ query: { query: search, limit: 50 } }))).data.items });
  return (
    <Panel title="Catalog" note={search ? `entries for “${search}”` : "tables"}>
      <form className="filters body" onSubmit={(event) => { event.preventDefault(); setSearch(typed.trim()); }}>
        <label>Search the catalog<input type="search" value={typed} onChange={(event) => setTyped(event.target.value)} /></label>
        <button className="button">Search</button>
      </form>
      {search === "" ? (
        <Loaded what="catalog" query={tables}>
          {(items) => items.length === 0 ? <Empty title="The catalog is empty" /> : (
            <ul className="body stack">
              {items.map((item) => <li key={item.id}><details><summary><b><Safe text={item.qualifiedName} limit={120} /></b> <span className="meta">{item.kind}, {item.origin}</span></summary><Json value={item.content} /></details></li>)}
            </ul>
          )}
        </Loaded>
      ) : (
        <Loaded what="search" query={found}>
          {(items) => items.length === 0 ? <Empty title="No entry matches" filtered /> : (
            <ul className="body stack">
              {items.map((item) => <li key={item.id}><b><Safe text={item.name} limit={120} /></b> <span className="meta">{item.kind}{item.table && <> of <Safe text={item.table} limit={80} /></>}</span> <Safe text={item.description ?? ""} limit={300} /></li>)}
            </ul>
          )}
        </Loaded>
      )}
    </Panel>
  );
}
