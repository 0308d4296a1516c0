// Several approvals of one kind, reviewed and decided together: all or none, each by its own digest.
import { useQueries } from "@tanstack/react-query";
import { useEffect, useRef, useState, type ReactNode } from "react";
import { Link } from "wouter";

import { decideApprovals, readApproval, type ApprovalInfo, type Subject, type WhoAmI } from "../../../sdk/typescript/src/index.js";
import { call, plangate } from "../api.js";
import { findDeceptions } from "../characters.js";
import { Badge, Empty, Failed, Loading, Note, Panel, Timer, usePageTitle } from "../components.js";
import { count, shortName } from "../format.js";
import { useKeys } from "../keys.js";
import { queries, useConnection } from "../live.js";
import { Inline, Safe, compact } from "../text.js";
import { asObject, kindOf, nameOf, obstacle } from "./data.js";
import { Confirm, DecisionError } from "./decide.js";

/** The most decisions of one request. */
const MOST = 100;

interface Item {
  approval: ApprovalInfo;
  subject: Subject | undefined;
  args: Record<string, unknown>;
}

/** Return the approvals with the bytes that a decision about each is about. */
function useItems(ids: readonly string[], known: readonly ApprovalInfo[]): { items: Item[]; error: unknown; isLoading: boolean } {
  const approvals = useQueries({
    queries: ids.map((id) => ({
      queryKey: ["approval", id],
      queryFn: async () => (await readApproval(call({ path: { approval_id: id } }))).data,
      initialData: known.find((each) => each.id === id),
    })),
  });
  const found = approvals.flatMap(({ data }) => data ?? []);
  const subjects = useQueries({
    queries: found.map(({ id, digest }) => ({ queryKey: ["subject", id, digest], staleTime: Infinity, queryFn: () => plangate.readSubject(id) })),
  });
  const items = found.map((approval, index) => {
    const subject = subjects[index]?.data;
    const value = asObject(subject?.value);
    return { approval, subject, args: asObject(value.kind === "plan" ? value.body : value.args) };
  });
  return {
    items,
    error: [...approvals, ...subjects].find((each) => each.error && !each.data)?.error,
    isLoading: [...approvals, ...subjects].some((each) => each.isPending),
  };
}

export function Together(props: {
  ids: readonly string[];
  known: readonly ApprovalInfo[];
  me: WhoAmI;
  query: string;
  onBack: () => void;
  onDone: () => void;
}): ReactNode {
  const ids = props.ids.slice(0, MOST);
  const { items, error, isLoading } = useItems(ids, props.known);
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [sure, setSure] = useState(false);
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState<unknown>();
  const connection = useConnection();
  const title = useRef<HTMLHeadingElement>(null);
  const first = items[0]?.approval;
  const name = first ? shortName(nameOf(first)) : "approvals";
  const heading = `${count(props.ids.length, first?.kind === "plan" ? "plan" : "call")} of ${name}`;
  usePageTitle(heading);
  const isShown = first !== undefined;
  useEffect(() => title.current?.focus({ preventScroll: true }), [isShown]);
  const oneKind = new Set(items.map((item) => kindOf(item.approval))).size === 1;
  const open = items.filter((item) => item.approval.status === "pending" && obstacle(item.approval, props.me) === undefined);
  const chosen = open.filter((item) => !left.has(item.approval.id));
  const matches = chosen.every((item) => item.subject?.digest === item.approval.digest);
  const ready = oneKind && chosen.length > 0 && matches && !isLoading && !busy && connection.kind !== "offline";
  useKeys(sure ? { Escape: () => setSure(false) } : { a: ready ? () => setSure(true) : undefined, Escape: props.onBack }, 1);

  async function approve(): Promise<void> {
    setBusy(true);
    setFailure(undefined);
    try {
      const decisions = chosen.map(({ approval, subject }) => ({ id: approval.id, decision: "approve" as const, digest: subject?.digest }));
      await decideApprovals(call({ body: { decisions } }));
      props.onDone();
    } catch (caught) {
      setFailure(caught);
      for (const { approval } of chosen) void queries.invalidateQueries({ queryKey: ["approval", approval.id] });
    } finally {
      setBusy(false);
      setSure(false);
      void queries.invalidateQueries({ queryKey: ["approvals"] });
    }
  }

  if (error) return <div className="detail"><Failed what="The approvals could not be read" error={error} nothing="Nothing was decided." /></div>;
  if (!first) return <div className="detail">{isLoading ? <Loading what="the approvals" /> : <Empty title="Nothing is open" />}</div>;
  return (
    <div className="detail">
      <div className="scroller">
        <div className="crumbs"><Link href={`/inbox${props.query}`} className="link">Back to the list</Link></div>
        <h1 ref={title} tabIndex={-1}><Safe text={heading} /></h1>
        <p className="lead"><b><Safe text={first.agent ?? "The agent"} limit={60} /></b> asks on behalf of <b><Safe text={first.requestedBy ?? "nobody"} limit={60} /></b></p>
        <div className="stack">
          {!oneKind && <Note tone="warn"><b>These are not of one kind.</b> Choose the same tool, agent and person.</Note>}
          {props.ids.length > MOST && <Note tone="plain">The first {MOST} are shown. One decision is about at most {MOST}.</Note>}
          <Comparison items={items} left={left} me={props.me} query={props.query} onToggle={(id) => setLeft((before) => { const next = new Set(before); if (!next.delete(id)) next.add(id); return next; })} />
        </div>
      </div>
      {sure ? (
        <Confirm title={`Approve ${chosen.length} together?`} busy={!ready} onBack={() => setSure(false)} onConfirm={() => void approve()} confirm={<><span>Approve {chosen.length} together</span> <kbd>Enter</kbd></>}>
          <p>All or nothing. Each keeps its own digest, which this browser computed from the bytes shown.</p>
        </Confirm>
      ) : (
        <footer className="decision step" aria-label="Decide together">
          {failure !== undefined && <DecisionError error={failure} />}
          {!isLoading && !matches && <Note tone="bad" live><b>A digest does not match.</b> Open that approval and read it again before you decide.</Note>}
          <div className="row">
            <button type="button" className="button big primary" disabled={!ready} onClick={() => setSure(true)}>Approve {chosen.length} of {items.length} <kbd aria-hidden>A</kbd></button>
            <span className="meta">All or nothing. Open one to reject it, or to send it back.</span>
          </div>
        </footer>
      )}
    </div>
  );
}

/** The arguments side by side. Those that are the same in all stand once, above. */
function Comparison(props: { items: readonly Item[]; left: ReadonlySet<string>; me: WhoAmI; query: string; onToggle: (id: string) => void }): ReactNode {
  const read = props.items.filter((item) => item.subject);
  const names = [...new Set(read.flatMap((item) => Object.keys(item.args)))];
  const differs = (name: string) => new Set(read.map((item) => (name in item.args ? compact(item.args[name]) : ""))).size > 1;
  const columns = names.filter(differs);
  const same = names.filter((name) => !columns.includes(name));
  const author = props.items[0]?.approval.agent ?? "the agent";
  return (
    <Panel
      title="Arguments"
      note={<><span className="written-by">written by <Safe text={author} limit={40} /></span> {columns.length === 0 ? "the same in all" : `${count(columns.length, "argument differs", "arguments differ")}`}</>}
    >
      {same.length > 0 && read.length > 0 && (
        <dl className="glimpse" aria-label="The same in all">
          {same.map((name) => (
            <div key={name}><dt><Safe text={name} limit={60} /></dt><dd><Inline value={read[0]?.args[name]} /> <span className="meta">same in all {read.length}</span></dd></div>
          ))}
        </dl>
      )}
      <div className="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col"><span className="hidden-text">Chosen</span></th>
              {columns.map((name) => <th key={name} scope="col" className="mono"><Safe text={name} limit={40} /></th>)}
              <th scope="col">Time left</th>
              <th scope="col"><span className="hidden-text">Open</span></th>
            </tr>
          </thead>
          <tbody>
            {props.items.map(({ approval, args, subject }, index) => {
              const why = approval.status === "pending" ? obstacle(approval, props.me) : "decided";
              const strange = findDeceptions(args).length > 0;
              return (
                <tr key={approval.id}>
                  <td>
                    <input type="checkbox" aria-label={`Approve number ${index + 1}`} disabled={why !== undefined} checked={why === undefined && !props.left.has(approval.id)} onChange={() => props.onToggle(approval.id)} />
                  </td>
                  {columns.map((name) => <td key={name}>{subject && name in args ? <Inline value={args[name]} /> : <span className="faint">–</span>}</td>)}
                  <td>{approval.status === "pending" ? <Timer until={approval.expiresAt} /> : <Badge status={approval.status} />}{strange && <span className="tag warn">Hidden or look-alike characters</span>}</td>
                  <td><Link href={`/inbox/${approval.id}${props.query}`} className="link">Open</Link></td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
