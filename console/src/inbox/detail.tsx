// One approval: what it will do, from the bytes that a decision is about.
import { useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronUp } from "lucide-react";
import { Suspense, lazy, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { Link } from "wouter";

import { listQueries, type ApprovalInfo, type Subject, type WhoAmI } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { findDeceptions, type Deception } from "../characters.js";
import { Facts, Failed, Loading, Note, Panel, Segments, useNow, usePageTitle, type Fact } from "../components.js";
import { count, kindCounts, money, shortId, shortName, time, timeLeft, tokens, whole } from "../format.js";
import { useKeys } from "../keys.js";
import { Inline, Json, ModelText, Safe } from "../text.js";
import { ActionTable, ChangeTag, FieldDifference, parseAction, variablesIn, type TypedAction } from "./actions.js";
import { usePlanChanges, type ActionChange, type PlanChanges } from "./changes.js";
import { Comments } from "./comments.js";
import {
  actionKinds, approvalsOf, approversOf, asList, asObject, asText, nameOf, revisionOf, useApproval, useAskingQuery, useAuthor, useRevisionBody,
  useRevisions,
  useSubject, type Revision,
} from "./data.js";
import { Decision } from "./decide.js";
import { parseFacts } from "./facts.js";
import { NamedFiles } from "./files.js";
import type { GraphEdge, GraphNode } from "./graph.js";
import { CopyButton, ReferenceCard, ValuesPanel, describeVariable, parseReferences, parseVariables, type StoredVariable } from "./values.js";

const PlanGraph = lazy(() => import("./graph.js"));

interface DetailProps {
  id: string;
  me: WhoAmI;
  place: string;
  onMove: (step: 1 | -1) => void;
  onDecided: (approval: ApprovalInfo) => void;
}

export function ApprovalDetail(props: DetailProps): ReactNode {
  const approval = useApproval(props.id);
  usePageTitle(approval.data ? titleOf(approval.data) : "Inbox");
  if (approval.error && !approval.data) {
    return <div className="detail"><Failed what="The approval could not be read" error={approval.error} onRetry={() => void approval.refetch()} nothing="Nothing was decided." /></div>;
  }
  if (!approval.data) return <div className="detail"><Loading what="the approval" /></div>;
  return <Loaded {...props} approval={approval.data} />;
}

function titleOf(approval: ApprovalInfo): string {
  if (approval.kind === "tool") return `Call ${shortName(approval.target)}`;
  return `Run ${count(actionKinds(approval).length, "action")} of ${shortName(nameOf(approval))}`;
}

function Loaded(props: DetailProps & { approval: ApprovalInfo }): ReactNode {
  const { approval, me } = props;
  const subject = useSubject(approval.id, approval.digest);
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const [selected, setSelected] = useState<string>();
  const title = useRef<HTMLHeadingElement>(null);
  useEffect(() => title.current?.focus({ preventScroll: true }), [approval.id]);
  const read = useMemo(() => (subject.data ? parseSubject(subject.data) : undefined), [subject.data]);
  const stored = (read?.variables ?? []).filter((each) => !each.resultOf);
  const unopened = stored.filter((each) => !opened.has(each.variable));
  const show = (variable: string) => {
    setSelected(variable);
    setOpened((before) => new Set(before).add(variable));
  };
  const showNext = () => {
    const next = unopened[0];
    if (next) show(next.variable);
    document.getElementById("values")?.scrollIntoView({ block: "nearest" });
  };
  useKeys({
    v: showNext,
    d: () => document.getElementById("changes")?.scrollIntoView({ block: "start" }),
    c: () => document.getElementById("comment")?.focus(),
  });
  const neverKinds = read?.actions.filter((action) => action.replay === "never").length;
  const saysReplay = read?.actions.some((action) => action.replay !== undefined) ?? false;
  return (
    <div className="detail">
      <div className="scroller">
        <div className="crumbs">
          <Link href="/inbox" className="link narrow">Back to the list</Link>
          <span>{approval.kind === "plan" ? "Plan" : "Tool call"}</span>
          {revisionOf(approval) !== undefined && <span>/ revision {revisionOf(approval)}</span>}
          <code>{shortId(approval.kind === "plan" ? approval.target : approval.id)}</code>
          <span className="end">
            <Link href={`/queries/${approval.queryId}`} className="button quiet">Open query</Link>
            <CopyButton label="Copy link" text={() => location.href} />
            <span className="wide">{props.place}</span>
            <button type="button" className="button quiet" onClick={() => props.onMove(-1)} aria-label="Previous approval"><ChevronUp aria-hidden size={14} /> <kbd className="wide">K</kbd></button>
            <button type="button" className="button quiet" onClick={() => props.onMove(1)} aria-label="Next approval"><ChevronDown aria-hidden size={14} /> <kbd className="wide">J</kbd></button>
          </span>
        </div>
        <h1 ref={title} tabIndex={-1}><Safe text={titleOf(approval)} /></h1>
        <p className="lead">
          <b><Safe text={approval.agent ?? "The agent"} limit={60} /></b> asks on behalf of{" "}
          <b><Safe text={approval.requestedBy ?? "nobody"} limit={60} /></b>
          {approval.kind === "plan" && <>: <Safe text={kindCounts(actionKinds(approval)).map(([kind, times]) => (times > 1 ? `${kind} × ${times}` : kind)).join(", ")} limit={400} /></>}
        </p>
        <Body
          approval={approval}
          me={me}
          subject={subject.data}
          read={read}
          error={subject.error}
          onRetry={() => void subject.refetch()}
          neverCount={saysReplay ? neverKinds : undefined}
          opened={opened}
          selected={selected}
          onOpen={show}
        />
      </div>
      <Decision
        approval={approval}
        subject={subject.data}
        me={me}
        actions={read?.actions.length ?? 0}
        isGraph={read !== undefined && dependencies(read).length > 0}
        notSafe={saysReplay ? neverKinds : undefined}
        unopened={unopened.length}
        values={stored.length}
        onDecided={props.onDecided}
        onShowValues={showNext}
      />
    </div>
  );
}

interface ReadSubject {
  body: Record<string, unknown>;
  actions: TypedAction[];
  variables: StoredVariable[];
  deceptions: Deception[];
  facts: Fact[];
  args: Record<string, unknown>;
}

function parseSubject(subject: Subject): ReadSubject {
  const value = asObject(subject.value);
  const body = asObject(value.body);
  const replay = asObject(value.replay);
  return {
    body,
    actions: asList(body.actions).map((action) => parseAction(action, replay)),
    variables: parseVariables(value.variables),
    deceptions: findDeceptions(value.kind === "tool" ? value.args : body),
    facts: parseFacts(value.facts),
    args: asObject(value.args),
  };
}

function Body(props: {
  approval: ApprovalInfo;
  me: WhoAmI;
  subject: Subject | undefined;
  read: ReadSubject | undefined;
  error: unknown;
  onRetry: () => void;
  neverCount: number | undefined;
  opened: ReadonlySet<string>;
  selected: string | undefined;
  onOpen: (variable: string) => void;
}): ReactNode {
  const { approval, read, subject } = props;
  const revisions = useRevisions(approval.kind === "plan" ? approval.target : undefined);
  const current = revisions.data?.find((each) => each.revision === revisionOf(approval));
  const author = useAuthor(current);
  const earlier = revisions.data?.filter((each) => each.revision < (revisionOf(approval) ?? 0)) ?? [];
  const sentBack = earlier.findLast((each) => each.status === "revised" || each.status === "rejected") ?? earlier.at(-1);
  const changes = usePlanChanges(approval.target, sentBack?.revision, revisionOf(approval));
  return (
    <div className="stack">
      <ApprovalFacts approval={approval} read={read} neverCount={props.neverCount} />
      {props.error && !read ? (
        <Failed what="The subject could not be read" error={props.error} onRetry={props.onRetry} nothing="Nothing was decided." />
      ) : !read || !subject ? (
        <Loading what="the subject" />
      ) : approval.kind === "plan" ? (
        <PlanBody {...props} read={read} subject={subject} author={author ?? "the model"} sentBack={sentBack} changes={changes.data} changesError={changes.error} />
      ) : (
        <ToolBody approval={approval} read={read} />
      )}
      <div className="two">
        <Rule approval={approval} />
        <Behind approval={approval} />
      </div>
      <Comments approvalId={approval.id} me={props.me} />
      {subject && (
        <Panel title="Subject" note={`The bytes you decide on, ${whole(subject.bytes.length)} of them`} end={<CopyButton label="Copy bytes" text={() => subject.text} />}>
          <pre className="bytes"><Safe text={subject.text} limit={3000} /></pre>
          <p className="body"><code>sha256 {subject.digest}</code></p>
        </Panel>
      )}
    </div>
  );
}

/** The most cells of one line of facts. */
const MOST_FACTS = 6;

function ApprovalFacts({ approval, read, neverCount }: { approval: ApprovalInfo; read: ReadSubject | undefined; neverCount: number | undefined }): ReactNode {
  const now = useNow();
  const query = useAskingQuery(approval.queryId);
  const left = Date.parse(approval.expiresAt) - now;
  const votes = (approval.votes ?? []).filter((vote) => vote.decision === "approve");
  const minimum = approversOf(approval).minimum;
  const usage = query.data?.usage;
  const onExpiry = asText(approval.rule?.onExpiry) === "fail" ? "the query fails" : "rejected";
  const facts: Fact[] = [
    approval.status === "pending"
      ? { label: "Time left", value: timeLeft(left), note: `${onExpiry} at ${time(approval.expiresAt)}`, ...(left < 120_000 ? { tone: "bad" as const } : left < 1_800_000 ? { tone: "warn" as const } : {}) }
      : { label: "Decided", value: time(approval.decidedAt ?? approval.expiresAt) },
    { label: "Votes", value: votes.length, unit: `of ${minimum}`, note: votes.length > 0 ? <Safe text={`${votes.map((vote) => vote.principal).join(", ")} approved`} limit={80} /> : "nobody voted yet" },
  ];
  const end: Fact[] = [];
  if (neverCount && read) {
    const kinds = [...new Set(read.actions.filter((action) => action.replay === "never").map((action) => action.kind))];
    end.push({ label: "Not safe to repeat", value: neverCount, unit: `of ${count(read.actions.length, "action")}`, ...(kinds.length > 0 && { note: <Safe text={kinds.join(", ")} limit={60} /> }) });
  }
  end.push({
    label: "Cost so far",
    value: query.data ? money(query.data.costUsd) : "…",
    note: usage ? `${tokens((usage.inputTokens ?? 0) + (usage.outputTokens ?? 0))} tokens` : undefined,
  });
  const behind = waitingBehind(approval);
  if (behind) end.push(behind);
  const declared = read?.facts ?? [];
  const room = MOST_FACTS - facts.length - end.length;
  return (
    <>
      <Facts facts={[...facts, ...(declared.length <= room ? declared : []), ...end]} />
      {declared.length > room && <Facts facts={declared} />}
    </>
  );
}

/** How much waits behind an approval, where the service says so. */
function waitingBehind(approval: ApprovalInfo): Fact | undefined {
  const { waitingParents: parents, waitingActions: actions = 0 } = approval;
  if (parents === undefined) return undefined;
  return { label: "Waiting behind it", value: parents, unit: parents === 1 ? "agent" : "agents", ...(actions > 0 && { note: count(actions, "action") }) };
}

function PlanBody(props: {
  approval: ApprovalInfo;
  subject: Subject;
  read: ReadSubject;
  author: string;
  sentBack: Revision | undefined;
  changes: PlanChanges | undefined;
  changesError: unknown;
  opened: ReadonlySet<string>;
  selected: string | undefined;
  onOpen: (variable: string) => void;
}): ReactNode {
  const { read, sentBack, approval } = props;
  const changes = props.changes?.actions;
  const [view, setView] = useState<"table" | "graph" | "json">("table");
  useKeys({ g: () => setView((before) => (before === "graph" ? "table" : "graph")) });
  const earlierBody = useRevisionBody(approval.target, sentBack?.revision).data;
  const before = useMemo(() => asList(earlierBody?.actions).map((action) => parseAction(action)), [earlierBody]);
  const describe = (variable: string) => {
    const found = read.variables.find((each) => each.variable === variable);
    return found ? describeVariable(found) : undefined;
  };
  const marks = useMemo(() => new Map(changes?.map((each) => [each.index, each.change])), [changes]);
  const nodes = useMemo<GraphNode[]>(
    () => read.actions.map((action, index) => {
      const change = marks.get(index) ?? "same";
      return { index, kind: action.kind, mark: change === "same" ? "" : change };
    }),
    [read.actions, marks],
  );
  const edges = useMemo(() => dependencies(read), [read]);
  const fields = Object.entries(read.body).filter(([name]) => name !== "actions");
  const prose = fields.filter((entry): entry is [string, string] => typeof entry[1] === "string" && /\s/.test(entry[1].trim()));
  const other = fields.filter(([name]) => !prose.some(([field]) => field === name));
  const references = parseReferences(asObject(props.subject.value).references);
  const inputs = asObject(asObject(props.subject.value).inputs);
  return (
    <>
      <Deceptions found={read.deceptions} />
      <Panel
        title="Actions"
        note={sentBack && changes ? `${read.actions.length}, with changes since revision ${sentBack.revision}` : whole(read.actions.length)}
        end={<Segments label="View of the actions" value={view} onChange={setView} options={[["table", "Table"], ["graph", "Graph"], ["json", "JSON"]]} />}
      >
        {view === "table" && <ActionTable actions={read.actions} author={props.author} changes={changes} before={before} describe={describe} />}
        {view === "graph" && <Suspense fallback={<Loading what="the graph" />}><PlanGraph nodes={nodes} edges={edges} /></Suspense>}
        {view === "json" && <div className="body model"><Json value={asObject(read.body)} /></div>}
      </Panel>
      <NamedFiles approval={approval} value={read.body} />
      {prose.map(([field, text]) => <ModelText key={field} by={`agent ${props.author}, field ${field}`} text={text} />)}
      {other.length > 0 && <Panel title="Other fields of the plan"><div className="body model"><Json value={Object.fromEntries(other)} /></div></Panel>}
      {sentBack && props.changes && <Changes changes={props.changes} sentBack={sentBack} />}
      {props.changesError && !props.changes ? <Failed what={`The changes since revision ${sentBack?.revision} could not be read`} error={props.changesError} nothing="The table shows the actions without them." /> : null}
      {read.variables.length > 0 && (
        <ValuesPanel approvalId={approval.id} variables={read.variables} opened={props.opened} selected={props.selected} onOpen={props.onOpen} />
      )}
      {Object.keys(inputs).length > 0 && <Panel title="Inputs of the query" note="from the person or program that asked"><div className="body"><Json value={inputs} /></div></Panel>}
      {references.map((reference) => <ReferenceCard key={reference.id} reference={reference} />)}
    </>
  );
}

/** Which action hands a value to which: from what the subject says of each variable. */
function dependencies(read: ReadSubject): GraphEdge[] {
  const results = new Map(read.variables.map((each) => [each.variable, each.resultOf ?? []]));
  return read.actions.flatMap((action, to) =>
    [...new Set(variablesIn(action.payload))].flatMap((path) => (results.get(path) ?? []).map((from) => ({ from, to, path }))),
  );
}

function Changes({ changes, sentBack }: { changes: PlanChanges; sentBack: Revision }): ReactNode {
  const actions = changes.actions.filter((each) => each.change !== "same");
  const of = (kind: ActionChange["change"]) => changes.actions.filter((each) => each.change === kind).length;
  const summary = [`${of("changed")} changed`, `${of("added")} added`, `${of("removed")} removed`, `${of("same")} the same`].join(", ");
  return (
    <Panel id="changes" title={`Changes since revision ${sentBack.revision}`} note={summary}>
      {sentBack.feedback && (
        <div className="body"><b>Feedback on revision {sentBack.revision}:</b> “<Safe text={sentBack.feedback} limit={1000} />”</div>
      )}
      <ChangeList changes={actions} context={changes.context} from={sentBack.revision} />
    </Panel>
  );
}

const LISTED_CHANGES = 100;

/** The actions that differ, and the other fields of the plan that do. */
export function ChangeList({ changes, context, from }: { changes: readonly ActionChange[]; context: PlanChanges["context"]; from: number }): ReactNode {
  const [most, setMost] = useState(LISTED_CHANGES);
  return (
    <>
      <table>
        <tbody>
          {changes.slice(0, most).map((each, row) => (
            <tr key={row}>
              <td><ChangeTag change={each} /></td>
              <td>
                <span className="mono faint">{each.index ?? `${each.before} in revision ${from}`}</span> <b><Safe text={each.kind} limit={60} /></b>
                {each.moved && <span className="meta"> was at {each.before}</span>}
                {each.fields.map((field) => <div key={field.pointer}><FieldDifference field={field} base="/payload" /></div>)}
              </td>
            </tr>
          ))}
          {context.map((field) => (
            <tr key={field.pointer}><td><span className="tag changed">Changed</span></td><td><FieldDifference field={field} /></td></tr>
          ))}
          {changes.length + context.length === 0 && <tr><td>All actions are the same.</td></tr>}
        </tbody>
      </table>
      {changes.length > most && <p className="body"><button type="button" className="button" onClick={() => setMost(changes.length)}>Show {changes.length - most} more</button></p>}
    </>
  );
}

/** Where hidden or look-alike characters are. */
function Deceptions({ found }: { found: readonly Deception[] }): ReactNode {
  if (found.length === 0) return null;
  const hidden = found.reduce((sum, each) => sum + each.hidden, 0);
  const alike = found.flatMap((each) => each.lookalikes);
  const parts = [hidden > 0 ? count(hidden, "hidden character") : "", alike.length > 0 ? count(alike.length, "look-alike character") : ""];
  const first = alike[0];
  return (
    <Note tone="warn">
      <b>{parts.filter(Boolean).join(" and ")}</b> in{" "}
      {found.slice(0, 5).map((each, index) => (
        <span key={index}>{index > 0 && ", "}<code><Safe text={each.path} limit={80} /></code></span>
      ))}
      {found.length > 5 && ` and ${found.length - 5} more fields`}. They are in the bytes you would approve; each is shown in its place.
      {first && <> “<Safe text={first.text} />” is {first.code}, {first.why}.</>}
    </Note>
  );
}

function ToolBody({ approval, read }: { approval: ApprovalInfo; read: ReadSubject }): ReactNode {
  const args = Object.entries(read.args);
  return (
    <>
      <Deceptions found={read.deceptions} />
      {approval.originalArgs && <Note tone="warn"><b>The arguments were edited by an approver.</b> Votes for the earlier arguments are void.</Note>}
      <Panel title="Arguments" note={<span className="written-by">written by <Safe text={approval.agent ?? "the agent"} limit={40} /></span>}>
        <table>
          <tbody>
            {args.map(([name, value]) => (
              <tr key={name}>
                <th scope="row" className="mono"><Safe text={name} limit={80} /></th>
                <td>{typeof value === "object" && value !== null ? <Json value={value} /> : <Inline value={value} />}</td>
              </tr>
            ))}
            {args.length === 0 && <tr><td>The call has no arguments.</td></tr>}
          </tbody>
        </table>
      </Panel>
      <NamedFiles approval={approval} value={read.args} />
    </>
  );
}

/** The rule that put the item here, and who has voted. */
function Rule({ approval }: { approval: ApprovalInfo }): ReactNode {
  const { rule } = approval;
  const { minimum, notRequester } = approversOf(approval);
  const what = approval.kind === "plan" ? "Plans" : `Calls of ${shortName(approval.target)}`;
  return (
    <Panel title="Why this is here">
      <div className="body stack">
        <p>
          {what} of agent <b><Safe text={approval.agent ?? ""} limit={60} /></b>{" "}
          {rule?.kind === "dynamic" ? <>need approval when <code>{rule.value}</code> says so</> : "always need approval"}
          {minimum > 1 && <> by <b>{minimum}</b> people</>}
          {notRequester && <>, not by the requester</>}.{" "}
          {approval.runtimeId && <Link href={`/runtimes/${approval.runtimeId}`} className="link">The rules of this runtime</Link>}
        </p>
        <p className="meta">No answer by {time(approval.expiresAt)}: {rule?.onExpiry === "fail" ? "the query fails." : "it is rejected, and the agent is told."}</p>
        <ul>
          {(approval.votes ?? []).map((vote) => (
            <li key={`${vote.principal}${vote.at}`}><b><Safe text={vote.principal} limit={60} /></b> {vote.decision === "approve" ? "approved" : vote.decision === "reject" ? "rejected" : "sent back"} <span className="meta">{time(vote.at)}</span></li>
          ))}
          {approval.status === "pending" && <li className="meta">{count(Math.max(0, minimum - approvalsOf(approval)), "more vote")} needed</li>}
        </ul>
      </div>
    </Panel>
  );
}

/** The query that waits, and the queries that queue behind it in its thread. */
function Behind({ approval }: { approval: ApprovalInfo }): ReactNode {
  const query = useAskingQuery(approval.queryId);
  const behind = useQuery({
    queryKey: ["queries", "behind", approval.threadId],
    queryFn: async () => {
      return (await listQueries(call({ query: { threadId: approval.threadId, status: "queued", limit: 20 } }))).data.items;
    },
  });
  return (
    <Panel title="Waiting behind it">
      <ul className="body stack">
        <li><Link href={`/queries/${approval.queryId}`} className="link"><Safe text={query.data?.prompt ?? approval.queryId} limit={120} /></Link></li>
        {(behind.data ?? []).map((each) => (
          <li key={each.id}>Queued: <Link href={`/queries/${each.id}`} className="link"><Safe text={each.prompt} limit={100} /></Link></li>
        ))}
        {behind.data?.length === 0 && <li className="meta">No other query of this thread waits.</li>}
      </ul>
    </Panel>
  );
}
