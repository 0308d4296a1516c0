// The decision bar: what each decision leads to, two steps to approve, and the receipt afterwards.
import { Check } from "lucide-react";
import { useEffect, useRef, useState, type ReactNode } from "react";
import { Link } from "wouter";

import { parseExact, stringifyExact, type ApprovalInfo, type ExactValue, type Subject, type WhoAmI } from "../../../sdk/typescript/src/index.js";
import { RequestFailed, plangate } from "../api.js";
import { Note, useNow } from "../components.js";
import { isObject } from "../exact.js";
import { ago, count, shortName, time } from "../format.js";
import { useKeys } from "../keys.js";
import { queries, useConnection } from "../live.js";
import { Safe } from "../text.js";
import { FieldDifference } from "./actions.js";
import { compareFields } from "./changes.js";
import { approvalsOf, approversOf, asObject, nameOf, obstacle, revisionOf } from "./data.js";

type Step = "choose" | "approve" | "reject" | "revise" | "edit";

interface DecisionProps {
  approval: ApprovalInfo;
  subject: Subject | undefined;
  me: WhoAmI;
  actions: number;
  /** Whether an action waits for the result of another one. */
  isGraph: boolean;
  notSafe: number | undefined;
  unopened: number;
  values: number;
  onDecided: (approval: ApprovalInfo) => void;
  onShowValues: () => void;
}

export function Decision(props: DecisionProps): ReactNode {
  const { approval, me } = props;
  const place = useRef<HTMLDivElement>(null);
  const voted = obstacle(approval, me) === "voted";
  const isFirst = useRef(true);
  useEffect(() => {
    // The button that had the focus is gone: what became of the decision takes its place.
    const isLost = document.activeElement === null || document.activeElement === document.body;
    const next = place.current?.querySelector<HTMLElement>("a, button") ?? place.current?.querySelector<HTMLElement>("footer");
    if (!isFirst.current && isLost) next?.focus();
    isFirst.current = false;
  }, [approval.status, voted]);
  return <div ref={place} className="decision-place"><DecisionBar {...props} /></div>;
}

function DecisionBar(props: DecisionProps): ReactNode {
  const { approval, me } = props;
  const now = useNow();
  if (approval.status !== "pending") return <footer className="decision step"><Receipt approval={approval} /></footer>;
  if (Date.parse(approval.expiresAt) < now) {
    return (
      <footer className="decision step">
        <Note tone="plain" live>
          <b>Expired at {time(approval.expiresAt)}.</b> Nobody decided in time. Nothing ran.
        </Note>
      </footer>
    );
  }
  const why = obstacle(approval, me);
  if (why) return <footer className="decision step" tabIndex={-1}><Obstacle why={why} approval={approval} /></footer>;
  return <Choices key={approval.digest} {...props} />;
}

function Obstacle({ why, approval }: { why: "scope" | "requester" | "voted"; approval: ApprovalInfo }): ReactNode {
  if (why === "requester") {
    return <Note tone="warn"><b>You asked for this.</b> It must be decided by someone other than the requester.</Note>;
  }
  if (why === "scope") {
    return <Note tone="plain"><b>You can read this and not decide it.</b> Deciding needs the scope <code>approvals:decide</code>.</Note>;
  }
  const missing = approversOf(approval).minimum - approvalsOf(approval);
  return <Note tone="ok" live><b>You voted.</b> {count(Math.max(missing, 0), "more vote")} needed.</Note>;
}

/** What became of an approval, whoever decided. */
export function Receipt({ approval }: { approval: ApprovalInfo }): ReactNode {
  const now = useNow();
  const by = approval.decidedBy;
  const at = approval.decidedAt ?? approval.expiresAt;
  const follow = <Link href={`/queries/${approval.queryId}`} className="link">Follow it</Link>;
  const who = by ? <Safe text={by} limit={60} /> : "A remembered approval";
  const what = approval.kind === "plan" ? "plan" : "call";
  switch (approval.status) {
    case "approved":
      return (
        <Note tone="ok" live>
          <b>{who} approved this {ago(at, now)}.</b> The {what} goes ahead. {follow}
          {approval.originalArgs && " The arguments were edited before."}
        </Note>
      );
    case "rejected":
      return (
        <Note tone="bad" live>
          <b>{who} rejected this {ago(at, now)}.</b> Nothing ran. {approval.feedback && <>Reason: “<Safe text={approval.feedback} limit={400} />” </>}{follow}
        </Note>
      );
    case "revised":
      return (
        <Note tone="plain" live>
          <b>{who} sent this back {ago(at, now)}.</b> Nothing ran. {approval.feedback && <>“<Safe text={approval.feedback} limit={400} />” </>}{follow}
        </Note>
      );
    case "expired":
      return <Note tone="plain" live><b>Expired at {time(at)}.</b> Nobody decided in time, so the {what} was rejected. Nothing ran. {follow}</Note>;
    case "cancelled":
      return <Note tone="plain" live><b>Canceled {ago(at, now)}.</b> The query ended before a decision. Nothing ran. {follow}</Note>;
    default:
      return null;
  }
}

function Choices(props: DecisionProps): ReactNode {
  const { approval, subject, me } = props;
  const [step, setStep] = useState<Step>("choose");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const connection = useConnection();
  const matches = subject?.digest === approval.digest;
  const off = connection.kind === "offline" || busy;
  const isPlan = approval.kind === "plan";
  const ready = matches && !off;
  const buttons = useRef<HTMLDivElement>(null);
  const left = useRef<Step>("choose");
  const back = () => {
    left.current = step;
    setStep("choose");
  };
  useEffect(() => {
    if (step !== "choose" || left.current === "choose") return;
    buttons.current?.querySelector<HTMLElement>(`[data-step="${left.current}"]`)?.focus();
    left.current = "choose";
  }, [step]);
  useKeys(
    step === "choose"
      ? {
          a: ready ? () => setStep("approve") : undefined,
          r: off ? undefined : () => setStep("reject"),
          e: off ? undefined : () => setStep(isPlan ? "revise" : "edit"),
        }
      : { Escape: back },
    1,
  );

  async function decide(send: () => Promise<ApprovalInfo>): Promise<void> {
    setBusy(true);
    setError(undefined);
    try {
      const decided = await send();
      queries.setQueryData(["approval", approval.id], decided);
      void queries.invalidateQueries({ queryKey: ["approvals"] });
      props.onDecided(decided);
    } catch (failure) {
      setError(failure);
      // Somebody else may have decided: the receipt then takes the place of the buttons.
      await queries.invalidateQueries({ queryKey: ["approval", approval.id] });
      void queries.invalidateQueries({ queryKey: ["approvals"] });
    } finally {
      setBusy(false);
      setStep("choose");
    }
  }

  const vote = approvalsOf(approval) + 1;
  const minimum = approversOf(approval).minimum;
  const quorum = minimum > 1 ? `Vote ${vote} of ${minimum}. ` : "";
  const effect = vote < minimum
    ? `${quorum}${count(minimum - vote, "more vote")} needed.`
    : isPlan ? `${quorum}${startOf(props.actions, props.isGraph)}` : `${quorum}The call is made at once.`;
  const label = isPlan ? `Approve ${count(props.actions, "action")}` : "Approve the call";
  const agent = shortName(approval.agent ?? "The agent", 24);
  const failed = error !== undefined && <DecisionError error={error} />;

  if (step === "approve" && subject) {
    return (
      <Confirm
        title={`${label}?`}
        onBack={back}
        confirm={<><span>{label}</span> <kbd>Enter</kbd></>}
        busy={!ready}
        onConfirm={() => void decide(() => plangate.approve(approval.id, subject.bytes))}
      >
        <p>
          {vote < minimum ? effect : isPlan ? `${quorum}${startOf(props.actions, props.isGraph)} They cannot be taken back.` : `${quorum}The call is made at once and cannot be taken back.`}
          {props.notSafe ? ` ${props.notSafe} of them ${props.notSafe === 1 ? "has" : "have"} replay never.` : ""}
          {props.unopened > 0 ? ` You have not opened ${props.unopened} of ${count(props.values, "value")}.` : ""}
        </p>
        <code className="digest">sha256 {grouped(subject.digest)}</code>
      </Confirm>
    );
  }
  if (step === "reject" || step === "revise") {
    const reject = step === "reject";
    return (
      <WithText
        title={reject ? `Reject ${shortName(nameOf(approval))}${isPlan ? `, revision ${revisionOf(approval) ?? ""}` : ""}?` : `Send ${shortName(nameOf(approval))} back?`}
        label={reject ? "Reason" : "Feedback"}
        note="sent to the agent, kept on record"
        consequence={reject ? "Nothing runs. The agent goes on without it." : `Nothing runs. ${agent} gets your feedback and may propose another revision.`}
        confirm={reject ? (isPlan ? "Reject plan" : "Reject call") : "Send back"}
        danger={reject}
        busy={off}
        onBack={back}
        onConfirm={(text) => void decide(() => (reject ? plangate.reject(approval.id, text) : plangate.revise(approval.id, text)))}
      />
    );
  }
  if (step === "edit" && subject) {
    return (
      <EditArguments
        approval={approval}
        subject={subject}
        busy={!ready}
        onBack={back}
        onRevise={() => setStep("revise")}
        onConfirm={(args, remember) =>
          void decide(() => plangate.approve(approval.id, subject.bytes, { ...(args && { args }), ...(remember && { scope: "thread" as const }) }))
        }
      />
    );
  }
  return (
    <footer className="decision" aria-label={`Decision of ${me.principal}`}>
      <div>
        {subject === undefined ? (
          <p className="meta">Reading the bytes…</p>
        ) : matches ? (
          <>
            <p className="matches"><Check aria-hidden size={15} /> Digest matches the bytes shown</p>
            <code className="digest faint wide">sha256 {grouped(subject.digest)}</code>
          </>
        ) : (
          <Note tone="bad" live>
            <b>The digest does not match.</b> Read the subject again before you decide.{" "}
            <button type="button" className="link" onClick={() => void queries.invalidateQueries({ queryKey: ["approval", approval.id] }).then(() => queries.resetQueries({ queryKey: ["subject", approval.id] }))}>
              Read again
            </button>
          </Note>
        )}
        {props.unopened > 0 && (
          <p className="meta">
            <button type="button" className="link" onClick={props.onShowValues}>{props.unopened} of {count(props.values, "value")}</button> not opened yet
          </p>
        )}
        {connection.kind === "offline" && <p className="meta">Decisions are off until the stream is back.</p>}
        {failed}
      </div>
      <div className="choices" ref={buttons}>
        <Choice primary step="approve" label="Approve" letter="A" disabled={!ready} effect={effect} onClick={() => setStep("approve")} />
        {isPlan ? (
          <Choice step="revise" label="Revise…" letter="E" disabled={off} effect={`Nothing runs. ${agent} gets your feedback.`} onClick={() => setStep("revise")} />
        ) : (
          <Choice step="edit" label="Edit or revise…" letter="E" disabled={off || !subject} effect="Other arguments, or feedback for the agent." onClick={() => setStep("edit")} />
        )}
        <Choice danger step="reject" label="Reject…" letter="R" disabled={off} effect="Nothing runs. The agent gets your reason." onClick={() => setStep("reject")} />
      </div>
    </footer>
  );
}

/** Say when the actions of an approved plan start. */
function startOf(actions: number, isGraph: boolean): string {
  if (isGraph) return "The actions start, each as soon as the results that it needs are there.";
  return actions === 1 ? "The action starts at once." : `All ${count(actions, "action")} start at once.`;
}

function grouped(digest: string): string {
  return digest.replace(/(.{8})(?=.)/g, "$1 ");
}

function Choice(props: { step: Step; label: string; letter: string; effect: string; disabled: boolean; onClick: () => void; primary?: boolean; danger?: boolean }): ReactNode {
  return (
    <div className="choice">
      <button
        type="button"
        data-step={props.step}
        className={`button big ${props.primary ? "primary" : ""} ${props.danger ? "danger" : ""}`}
        disabled={props.disabled}
        onClick={props.onClick}
      >
        {props.label} <kbd aria-hidden>{props.letter}</kbd>
      </button>
      <span className="meta">{props.effect}</span>
    </div>
  );
}

/** What went wrong with a decision, in words that say whether anything was decided. */
export function DecisionError({ error }: { error: unknown }): ReactNode {
  const failed = error instanceof RequestFailed ? error : undefined;
  if (failed?.status === 409) return <Note tone="warn" live><Safe text={failed.message} limit={400} /></Note>;
  return (
    <Note tone="bad" live>
      <b>The decision was not {failed?.status === undefined ? "confirmed" : "accepted"}.</b>{" "}
      {failed?.status === undefined
        ? "The service did not answer. Repeating the same decision is safe."
        : <>{failed.status} from {failed.route}: <Safe text={failed.message} limit={400} /> Nothing was decided.</>}
    </Note>
  );
}

/** The second step of an approval: Enter confirms, Escape goes back. */
export function Confirm(props: {
  title: string;
  confirm: ReactNode;
  busy: boolean;
  danger?: boolean;
  onBack: () => void;
  onConfirm: () => void;
  children: ReactNode;
}): ReactNode {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => button.current?.focus(), []);
  return (
    <footer className="decision step" role="group" aria-label={props.title}>
      <h2><Safe text={props.title} /></h2>
      {props.children}
      <div className="row">
        <button ref={button} type="button" className="button big primary" disabled={props.busy} onClick={props.onConfirm}>{props.confirm}</button>
        <button type="button" className="button big" onClick={props.onBack}>Keep it open <kbd>Esc</kbd></button>
      </div>
    </footer>
  );
}

function WithText(props: {
  title: string;
  label: string;
  note: string;
  consequence: string;
  confirm: string;
  danger: boolean;
  busy: boolean;
  onBack: () => void;
  onConfirm: (text: string) => void;
}): ReactNode {
  const [text, setText] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <footer className="decision step">
      <form
        className="step"
        aria-label={props.title}
        onSubmit={(event) => {
          event.preventDefault();
          if (text.trim()) props.onConfirm(text.trim());
        }}
      >
        <h2><Safe text={props.title} /></h2>
        <p>{props.consequence}</p>
        <label>
          <span>{props.label} <span className="meta">{props.note}</span></span>
          <textarea
            ref={field}
            value={text}
            required
            maxLength={20_000}
            onChange={(event) => setText(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.form?.requestSubmit();
            }}
          />
        </label>
        <div className="row">
          <button className={`button big ${props.danger ? "danger" : "primary"}`} disabled={props.busy || !text.trim()}>{props.confirm}</button>
          <button type="button" className="button big" onClick={props.onBack}>Keep it open <kbd>Esc</kbd></button>
        </div>
      </form>
    </footer>
  );
}

/** Other arguments for a call. The JSON is edited as text, so that every digit stays as it is written. */
function EditArguments(props: {
  approval: ApprovalInfo;
  subject: Subject;
  busy: boolean;
  onBack: () => void;
  onRevise: () => void;
  onConfirm: (args: Record<string, ExactValue> | undefined, remember: boolean) => void;
}): ReactNode {
  const { approval } = props;
  const original = asObject(asObject(props.subject.value).args);
  const [text, setText] = useState(() => stringifyExact(original, 2));
  const [remember, setRemember] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);
  let args: Record<string, ExactValue> | undefined;
  let problem = "";
  try {
    const parsed = parseExact(text);
    if (isObject(parsed)) args = parsed as Record<string, ExactValue>;
    else problem = "The arguments must be an object.";
  } catch (error) {
    problem = error instanceof Error ? error.message : String(error);
  }
  const changes = args ? compareFields(original, args) : [];
  const votes = approvalsOf(approval);
  const rememberable = approval.rule?.rememberable;
  const free = asObject(rememberable).free;
  return (
    <footer className="decision step">
      <form
        className="step"
        aria-label="Edit the arguments"
        onSubmit={(event) => {
          event.preventDefault();
          if (args) props.onConfirm(changes.length > 0 ? args : undefined, remember);
        }}
      >
        <h2>Edit the arguments of <Safe text={shortName(approval.target)} /></h2>
        <label>
          Arguments
          <textarea ref={field} className="mono" rows={6} spellCheck={false} value={text} aria-invalid={problem !== ""} onChange={(event) => setText(event.target.value)} />
        </label>
        {problem && <p className="note bad" role="alert">{problem}</p>}
        {changes.length > 0 && (
          <ul aria-label="Changed arguments">
            {changes.map((change) => (
              <li key={change.pointer}><FieldDifference field={change} /></li>
            ))}
          </ul>
        )}
        {changes.length > 0 && (
          <p className="meta">
            Edited arguments get a new digest. {votes > 0 && `${count(votes, "earlier vote")} ${votes === 1 ? "is" : "are"} void.`}
          </p>
        )}
        {rememberable !== undefined && rememberable !== null && rememberable !== false && (
          <label className="check">
            <input type="checkbox" checked={remember} onChange={(event) => setRemember(event.target.checked)} /> Let{" "}
            {shortName(approval.agent ?? "the agent", 24)} repeat this call in this thread without asking
            {Array.isArray(free) && free.length > 0 && <>, with any <code>{free.join(", ")}</code></>}
          </label>
        )}
        <div className="row">
          <button className="button big primary" disabled={props.busy || !args}>{changes.length > 0 ? "Approve edited call" : "Approve the call"}</button>
          <button type="button" className="button big" onClick={props.onRevise}>Send back with feedback…</button>
          <button type="button" className="button big" onClick={props.onBack}>Keep it open <kbd>Esc</kbd></button>
        </div>
      </form>
    </footer>
  );
}
