// The inbox: the list of what waits, and the approval that is open.
import { Bell } from "lucide-react";
import { useEffect, useRef, useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";

import type { ApprovalInfo, WhoAmI } from "../../../sdk/typescript/src/index.js";
import { visibleText } from "../characters.js";
import { Empty, Failed, Loading, usePageTitle } from "../components.js";
import { readFilters, useAddressFilters, useSettled } from "../filters.js";
import { count, shortName, whole } from "../format.js";
import { useKeys } from "../keys.js";
import { onEvent } from "../live.js";
import { Safe } from "../text.js";
import { APPROVAL_FILTERS, kindOf, nameOf, useApprovalCounts, useDecidedApprovals, useOpenApprovals } from "./data.js";
import { Receipt } from "./decide.js";
import { ApprovalDetail } from "./detail.js";
import { Lines, addressOf, hasOne, togetherAddress, useGoneWhileHere, useLines, useSteadyOrder } from "./list.js";
import { SavedFilters, SearchFields, clearedFilters, describeFilters } from "./search.js";
import { Together } from "./together.js";

const NONE: readonly ApprovalInfo[] = [];

export function InboxPage({ me, id }: { me: WhoAmI; id: string | undefined }): ReactNode {
  usePageTitle("Inbox");
  const [parameters, setAddress] = useAddressFilters();
  const filters = useSettled(readFilters(parameters, APPROVAL_FILTERS));
  const filtered = describeFilters(parameters);
  const show = parameters.get("show") ?? "me";
  const together = parameters.get("together")?.split(",") ?? [];
  const counts = useApprovalCounts().data;
  const mine = useOpenApprovals({ ...filters, canDecide: true });
  const open = useOpenApprovals(filters, show === "all");
  const decided = useDecidedApprovals(filters, show === "decided");
  const [, navigate] = useLocation();
  const [hold, setHold] = useState(false);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [receipt, setReceipt] = useState<ApprovalInfo>();
  const [announcement, setAnnouncement] = useState("");
  const field = useRef<HTMLInputElement>(null);
  const list = new URLSearchParams(parameters);
  list.delete("together");
  const query = list.size > 0 ? `?${list}` : "";

  useEffect(
    () => onEvent((event) => {
      if (event.type !== "approval-required") return;
      setAnnouncement(visibleText(`New approval: ${shortName(nameOf(event.data))} from ${shortName(event.data.agent ?? "an agent")}`));
      notify(event.data);
    }),
    [],
  );

  const source = show === "decided" ? decided : show === "all" ? open : mine;
  const pending = (show === "all" ? open : mine).data?.items ?? NONE;
  const gone = useGoneWhileHere(pending);
  const listed = useSteadyOrder(source.data?.items ?? NONE, hold && show !== "decided");
  const lines = useLines(listed, show, gone, hold);
  const stops = lines.filter((line) => line.kind !== "group");
  const opened = new Set(id ? [id] : together);
  const position = stops.findIndex((line) => hasOne(line, opened));
  const current = listed.find((item) => item.id === id);

  const goBack = () => navigate(`/inbox${query}`);
  const move = (step: 1 | -1) => {
    const line = stops[position < 0 ? 0 : Math.min(Math.max(position + step, 0), stops.length - 1)];
    const address = line && addressOf(line, query);
    if (address) navigate(address);
  };
  const toggle = (item: ApprovalInfo) =>
    setChosen((before) => {
      const next = new Set(before);
      if (!next.delete(item.id)) next.add(item.id);
      return next;
    });
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: () => (position < 0 ? move(1) : undefined),
    x: current?.status === "pending" ? () => toggle(current) : undefined,
    "/": () => field.current?.focus(),
    Escape: goBack,
  });

  const afterDecision = (approval: ApprovalInfo) => {
    if (approval.status === "pending") return; // a vote: more are needed
    setReceipt(approval);
    const next = mine.data?.items.find((item) => item.id !== approval.id);
    if (next) navigate(`/inbox/${next.id}${query}`);
  };
  const forMe = filtered ? mine.data?.items.length : counts?.canDecide;
  const all = filtered ? (show === "all" ? pending.length : undefined) : counts?.pending;
  const others = filtered || !counts ? 0 : counts.pending - counts.canDecide;

  return (
    <main className={`inbox ${opened.size > 0 ? "opened" : ""}`}>
      <section className="list" aria-label="Approvals">
        <header>
          <div className="row">
            {opened.size > 0 ? <h2>Inbox</h2> : <h1>Inbox</h1>}
            <span className="end"><NotifyButton /></span>
          </div>
          <SearchFields parameters={parameters} listed={listed} field={field} onChange={setAddress} />
          <div className="chips" role="group" aria-label="Filter">
            {([["me", labelled("For me", forMe)], ["all", labelled("All", all)], ["decided", "Decided"]] as const).map(([value, label]) => (
              <button key={value} type="button" className="chip" aria-pressed={show === value} onClick={() => setAddress({ show: value === "me" ? "" : value })}>{label}</button>
            ))}
            <SavedFilters parameters={parameters} onChange={setAddress} />
          </div>
        </header>
        {receipt && receipt.id !== id && <div className="receipt"><b><Safe text={shortName(nameOf(receipt))} /></b> <Receipt approval={receipt} /></div>}
        <div onPointerEnter={() => setHold(true)} onPointerLeave={() => setHold(false)} className="scroller" id="approvals">
          {source.error && !source.data ? (
            <Failed what="The inbox could not be read" error={source.error} onRetry={() => void source.refetch()} />
          ) : !source.data ? (
            <Loading what="the inbox" />
          ) : lines.length === 0 ? (
            <Nothing filtered={filtered} others={others} show={show} onClear={() => setAddress(clearedFilters())} onAll={() => setAddress({ show: "all" })} />
          ) : (
            <Lines lines={lines} open={opened} query={query} chosen={chosen} onToggle={toggle} />
          )}
          {source.data && !source.data.isComplete && (
            <p className="body meta">The newest {count(source.data.items.length, "approval")} {filtered ? "that match" : ""} are listed. Filter to see others.</p>
          )}
        </div>
        {chosen.size > 0 && <Chosen chosen={listed.filter((item) => chosen.has(item.id))} query={query} onDone={() => setChosen(new Set())} />}
      </section>
      {id ? (
        <ApprovalDetail
          key={id}
          id={id}
          me={me}
          place={position < 0 ? "" : `${position + 1} of ${stops.length}`}
          onMove={move}
          onDecided={afterDecision}
        />
      ) : together.length > 0 ? (
        <Together key={together.join()} ids={together} known={pending} me={me} query={query} onBack={goBack} onDone={() => { setChosen(new Set()); goBack(); }} />
      ) : (
        <div className="detail wide"><Empty title={stops.length > 0 ? "Choose an approval" : "Nothing is open"}>{stops.length > 0 && <p>Press <kbd>J</kbd> for the first one.</p>}</Empty></div>
      )}
      <p className="hidden-text" role="status">{announcement}</p>
    </main>
  );
}

/** Return a name with a number behind it, where the number is known. */
function labelled(name: string, number: number | undefined): string {
  return number === undefined ? name : `${name} ${whole(number)}`;
}

function Nothing(props: { filtered: string; others: number; show: string; onClear: () => void; onAll: () => void }): ReactNode {
  if (props.filtered) {
    return (
      <Empty title="No approval matches" filtered>
        <p><Safe text={props.filtered} limit={200} /></p>
        <button type="button" className="button" onClick={props.onClear}>Clear filters</button>
      </Empty>
    );
  }
  if (props.show === "decided") return <Empty title="Nothing was decided yet" />;
  return (
    <Empty title="Nothing waits for you">
      <p>New approvals appear here by themselves. {props.show === "me" && props.others > 0 && `${props.others} are open for other people.`}</p>
      {props.show === "me" && props.others > 0 && <button type="button" className="button" onClick={props.onAll}>Show all open</button>}
    </Empty>
  );
}

/** Approvals that a person chose, to review and decide them together. */
function Chosen({ chosen, query, onDone }: { chosen: readonly ApprovalInfo[]; query: string; onDone: () => void }): ReactNode {
  const oneKind = new Set(chosen.map(kindOf)).size === 1;
  const [first] = chosen;
  return (
    <div className="bulk" role="group" aria-label="Decide several">
      <p>
        <b>{count(chosen.length, "approval")} chosen.</b>{" "}
        {oneKind && first ? <>All are <Safe text={shortName(nameOf(first))} /> from one agent for one person.</> : "They are not of one kind: choose the same tool, agent and person."}
      </p>
      <div className="row">
        {oneKind && <Link href={togetherAddress(chosen, query)} className="button primary">Review {chosen.length} together</Link>}
        <button type="button" className="button" onClick={onDone}>Choose none</button>
      </div>
    </div>
  );
}

function NotifyButton(): ReactNode {
  const [state, setState] = useState(() => (typeof Notification === "undefined" ? "denied" : Notification.permission));
  if (state !== "default") return null;
  return (
    <button type="button" className="button quiet" onClick={() => void Notification.requestPermission().then(setState)}>
      <Bell aria-hidden size={14} /> Notify me
    </button>
  );
}

/** Notify a person who looks at another page. Its words are the console's; names are from typed fields. */
function notify(approval: ApprovalInfo): void {
  if (typeof Notification === "undefined" || Notification.permission !== "granted" || document.visibilityState === "visible") return;
  new Notification("Plangate: new approval", { body: visibleText(`${shortName(nameOf(approval))} from ${shortName(approval.agent ?? "an agent")}`), tag: approval.id });
}
