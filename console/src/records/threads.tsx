// Threads: the list, and one thread with its queries, state and its history, files and messages.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";

import { forkThread, listFiles, listQueries, listThreadMessages, listThreads, readThread } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Empty, Facts, Loaded, Panel, TabPages, usePageTitle } from "../components.js";
import { useAddressFilters } from "../filters.js";
import { bytes, shortId, time } from "../format.js";
import { readPages } from "../inbox/data.js";
import { DecisionError } from "../inbox/decide.js";
import { QueryTable } from "../query/pages.js";
import { ModelText, Safe, ToolText } from "../text.js";
import { Preview } from "./preview.js";
import { State } from "./state.js";

export function ThreadsPage({ id }: { id: string | undefined }): ReactNode {
  return id === undefined ? <List /> : <One key={id} id={id} />;
}

function List(): ReactNode {
  usePageTitle("Threads");
  const found = useQuery({
    queryKey: ["threads"],
    queryFn: () => readPages(async (cursor) => (await listThreads(call({ query: { limit: 200, ...(cursor !== undefined && { cursor }) } }))).data, 400),
  });
  return (
    <main className="page">
      <header><h1>Threads</h1></header>
      <Loaded what="list of threads" query={found}>
        {(items) => items.length === 0 ? <Empty title="There are no threads yet" /> : (
          <div className="panel scroll">
            <table>
              <thead><tr><th scope="col">Thread</th><th scope="col">Key</th><th scope="col">Runtime</th><th scope="col" className="number">Created</th></tr></thead>
              <tbody>
                {items.map((item) => (
                  <tr key={item.id}>
                    <td><Link href={`/threads/${item.id}`} className="link">{shortId(item.id)}</Link></td>
                    <td><Safe text={item.key ?? ""} limit={80} /></td>
                    <td>{item.runtimeId && <Link href={`/runtimes/${item.runtimeId}`} className="link">{shortId(item.runtimeId)}</Link>}</td>
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
  usePageTitle("Thread");
  const [parameters, setAddress] = useAddressFilters();
  const [error, setError] = useState<unknown>();
  const [, navigate] = useLocation();
  const thread = useQuery({ queryKey: ["thread", id], queryFn: async () => (await readThread(call({ path: { thread_id: id } }))).data });
  const found = useQuery({ queryKey: ["queries", "thread", id], queryFn: async () => (await listQueries(call({ query: { threadId: id, limit: 200 } }))).data.items });
  const fork = () => forkThread(call({ path: { thread_id: id }, body: {} })).then(({ data }) => navigate(`/threads/${data.id}`)).catch(setError);
  return (
    <main className="page">
      <Loaded what="thread" query={thread}>
        {(data) => (
          <>
            <div className="crumbs"><Link href="/threads" className="link">Threads</Link> / <code>{shortId(id)}</code><span className="end"><button type="button" className="button" onClick={() => void fork()}>Fork thread</button></span></div>
            <header><h1>Thread <Safe text={data.key ?? shortId(id)} limit={80} /></h1></header>
            {error !== undefined && <DecisionError error={error} />}
            <Facts facts={[{ label: "Queries in progress", value: data.activeQueries.length }, { label: "Created", value: time(data.createdAt) }, { label: "Runtime", value: data.runtimeId ? <Link href={`/runtimes/${data.runtimeId}`} className="link">{shortId(data.runtimeId)}</Link> : "–" }]} />
            <TabPages
              label="Parts of the thread"
              value={parameters.get("tab") ?? "queries"}
              onChange={(tab) => setAddress({ tab: tab === "queries" ? "" : tab })}
              pages={[
                { id: "queries", title: "Queries", count: found.data?.length, content: () => <Loaded what="list of queries" query={found}>{(items) => items.length === 0 ? <Empty title="This thread has no queries" /> : <QueryTable items={items} />}</Loaded> },
                { id: "state", title: "State", content: () => <State id={id} /> },
                { id: "files", title: "Files", content: () => <Files id={id} /> },
                { id: "messages", title: "Messages", content: () => <Messages id={id} /> },
              ]}
            />
          </>
        )}
      </Loaded>
    </main>
  );
}

function Files({ id }: { id: string }): ReactNode {
  const [open, setOpen] = useState<string>();
  const files = useQuery({
    queryKey: ["thread", id, "files"],
    queryFn: () => readPages(async (cursor) => (await listFiles(call({ path: { thread_id: id }, query: { limit: 200, ...(cursor !== undefined && { cursor }) } }))).data, 1000),
  });
  return (
    <Loaded what="list of files" query={files}>
      {(items) => items.length === 0 ? <Empty title="The workspace has no files" /> : (
        <div className="stack">
          <div className="panel scroll">
            <table>
              <thead><tr><th scope="col">Path</th><th scope="col">Written by</th><th scope="col" className="number">Version</th><th scope="col" className="number">Size</th><th scope="col" className="number">At</th></tr></thead>
              <tbody>
                {items.map((file) => (
                  <tr key={file.path}>
                    <td><button type="button" className="link mono" onClick={() => setOpen(file.path)}><Safe text={file.path} limit={160} /></button></td>
                    <td><Safe text={file.writtenBy} limit={40} /></td>
                    <td className="number">{file.version}</td>
                    <td className="number">{bytes(file.sizeBytes)}</td>
                    <td className="number">{time(file.at)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {open !== undefined && (
            <Panel title="File" note={<span className="mono"><Safe text={open} limit={120} /></span>}>
              <Preview key={open} path={`threads/${encodeURIComponent(id)}/files/${open.split("/").map(encodeURIComponent).join("/")}`} name={open} sizeBytes={items.find((file) => file.path === open)?.sizeBytes} from={`file ${open}`} />
            </Panel>
          )}
        </div>
      )}
    </Loaded>
  );
}

function Messages({ id }: { id: string }): ReactNode {
  const messages = useInfiniteQuery({
    queryKey: ["thread", id, "messages"],
    initialPageParam: "",
    queryFn: async ({ pageParam: cursor }) => (await listThreadMessages(call({ path: { thread_id: id }, query: { ...(cursor !== "" && { cursor }) } }))).data,
    getNextPageParam: (page) => page.nextCursor ?? undefined,
  });
  // Each page has the messages before those of the one that was read before it.
  const read = messages.data && [...messages.data.pages].reverse().flatMap((page) => page.items);
  return (
    <Loaded what="list of messages" query={{ data: read, error: messages.error, refetch: messages.refetch }}>
      {(items) => items.length === 0 ? <Empty title="No agent of this thread keeps messages" /> : (
        <div className="conversation">
          {messages.hasNextPage && <button type="button" className="button" disabled={messages.isFetchingNextPage} onClick={() => void messages.fetchNextPage()}>Earlier messages</button>}
          {items.map((message, index) => (
            <div key={index}>
              <p className="speaker"><b><Safe text={message.agent} limit={40} /></b> <span className="meta">{message.role}</span></p>
              {message.blocks.map((block, place) => {
                if (block.type === "text") return message.role === "user" ? <div key={place} className="prompt"><Safe text={block.text} limit={2000} /></div> : <ModelText key={place} by={`agent ${message.agent}`} text={block.text} />;
                if (block.type === "thinking") return <ModelText key={place} by={`agent ${message.agent}, thinking`} text={block.text} />;
                if (block.type === "tool_use") return <ModelText key={place} by={`agent ${message.agent}, call of ${block.name}`} text={block.arguments} />;
                return <ToolText key={place} from="a tool"><p className="prose"><Safe text={block.content} limit={2000} /></p></ToolText>;
              })}
            </div>
          ))}
        </div>
      )}
    </Loaded>
  );
}
