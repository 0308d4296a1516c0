// The state of a thread as it is, as it was after any write, and the log of its writes.
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { listStateWrites } from "../../../sdk/typescript/src/index.js";
import { call, readExact } from "../api.js";
import { Empty, Loaded, Panel } from "../components.js";
import { time } from "../format.js";
import { asObject, readPages } from "../inbox/data.js";
import { Json, Safe, ToolText, compact } from "../text.js";

/** The state at any write: a slider over its history. Writes of the query `queryId` are marked. */
export function State({ id, queryId }: { id: string; queryId?: string }): ReactNode {
  const log = useQuery({
    queryKey: ["thread", id, "log"],
    queryFn: () => readPages(async (cursor) => (await listStateWrites(call({ path: { thread_id: id }, query: { limit: 200, ...(cursor !== undefined && { cursor }) } }))).data, 1000),
  });
  const [at, setAt] = useState<number>();
  const writes = (log.data ?? []).filter((write) => !write.failed).map((write) => write.write).sort((one, other) => one - other);
  const place = at === undefined ? writes.length - 1 : Math.min(at, writes.length - 1);
  const write = at === undefined ? undefined : writes[place];
  const state = useQuery({
    queryKey: ["thread", id, "state", write ?? "now"],
    queryFn: async ({ signal }) => ({ document: asObject(asObject(await readExact(`threads/${encodeURIComponent(id)}/state${write === undefined ? "" : `?at=${write}`}`, signal)).document) }),
    placeholderData: (before) => before,
  });
  return (
    <div className="stack">
      {writes.length > 0 && (
        <Panel title="History" note={write === undefined ? "now" : `as of write ${write}`}>
          <div className="body">
            <label>
              <span className="hidden-text">Write</span>
              <input type="range" min={0} max={writes.length - 1} value={place} aria-valuetext={`write ${writes[place] ?? ""}`} onChange={(event) => setAt(Number(event.target.value))} />
            </label>{" "}
            {at !== undefined && <button type="button" className="button" onClick={() => setAt(undefined)}>Now</button>}
          </div>
        </Panel>
      )}
      <Panel title="State"><div className="body"><Loaded what="state" query={state}>{(data) => <ToolText from="agents and programs that write state"><Json value={data.document} /></ToolText>}</Loaded></div></Panel>
      <Panel title="Writes">
        <Loaded what="log of writes" query={log}>
          {(items) => items.length === 0 ? <Empty title="Nothing was written" /> : (
            <div className="scroll">
              <table>
                <thead><tr><th scope="col" className="number">Write</th><th scope="col">Path</th><th scope="col">Method</th><th scope="col">By</th><th scope="col">Glimpse</th><th scope="col" className="number">At</th></tr></thead>
                <tbody>
                  {items.map((each) => (
                    <tr key={each.write}>
                      <td className="number">
                        <button type="button" className="link" disabled={each.failed} aria-label={`Show the state as of write ${each.write}`} onClick={() => setAt(writes.indexOf(each.write))}>{each.write}</button>
                      </td>
                      <td className="mono"><Safe text={each.path} limit={80} /></td>
                      <td>{each.method}{each.failed && " (failed)"}</td>
                      <td>
                        <Safe text={each.agent ?? each.principal ?? ""} limit={40} />
                        {queryId !== undefined && each.queryId === queryId && <span className="tag changed">This query</span>}
                      </td>
                      <td className="mono"><Safe text={compact(each.glimpse)} limit={120} /></td>
                      <td className="number">{time(each.at)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </Loaded>
      </Panel>
    </div>
  );
}
