// The search and the filters of the inbox. The service applies them; the address has them; the browser can save them.
import { Search } from "lucide-react";
import { useState, type ReactNode, type RefObject } from "react";

import type { ApprovalInfo } from "../../../sdk/typescript/src/index.js";
import { Safe } from "../text.js";
import { APPROVAL_FILTERS, useApprovalCounts } from "./data.js";

const STORED_FILTERS = "plangate-inbox-filters";
const MOST_SAVED = 8;
const LABELS = {
  text: "text", kind: "kind", agent: "agent", tool: "tool", runtime: "runtime", requester: "asked by", from: "from", to: "to",
} as const satisfies Record<(typeof APPROVAL_FILTERS)[number], string>;

type Change = (changes: Record<string, string>) => void;

/** Say which filters are set, such as `agent: sender, tool: pay`. */
export function describeFilters(parameters: URLSearchParams): string {
  return APPROVAL_FILTERS.flatMap((name) => (parameters.get(name) ? [`${LABELS[name]}: ${parameters.get(name)}`] : [])).join(", ");
}

export function clearedFilters(): Record<string, string> {
  return Object.fromEntries(APPROVAL_FILTERS.map((name) => [name, ""]));
}

export function SearchFields(props: {
  parameters: URLSearchParams;
  listed: readonly ApprovalInfo[];
  field: RefObject<HTMLInputElement | null>;
  onChange: Change;
}): ReactNode {
  const { parameters, onChange } = props;
  const groups = useApprovalCounts().data?.groups ?? [];
  const active = APPROVAL_FILTERS.filter((name) => name !== "text" && parameters.get(name)).length;
  const suggestions = {
    agent: groups.map((group) => group.agent),
    runtime: groups.map((group) => group.runtime),
    tool: props.listed.filter((item) => item.kind === "tool").map((item) => item.target),
    requester: props.listed.map((item) => item.requestedBy),
  };
  return (
    <>
      <label className="search">
        <span className="hidden-text">Search agent, tool, person or text</span>
        <Search aria-hidden size={14} />
        <input ref={props.field} type="search" value={parameters.get("text") ?? ""} placeholder="Search agent, tool, person, text" onChange={(event) => onChange({ text: event.target.value })} />
      </label>
      <details className="more-filters">
        <summary>Filters{active > 0 && ` (${active})`}</summary>
        <div>
          <label>
            Kind
            <select value={parameters.get("kind") ?? ""} onChange={(event) => onChange({ kind: event.target.value })}>
              <option value="">Any</option>
              <option value="plan">Plans</option>
              <option value="tool">Tool calls</option>
            </select>
          </label>
          {(["agent", "tool", "runtime", "requester"] as const).map((name) => (
            <label key={name}>
              {name === "requester" ? "Asked by" : LABELS[name].replace(/^./, (letter) => letter.toUpperCase())}
              <input value={parameters.get(name) ?? ""} list={`filter-${name}`} autoComplete="off" onChange={(event) => onChange({ [name]: event.target.value })} />
              <datalist id={`filter-${name}`}>
                {[...new Set(suggestions[name])].map((each) => each && <option key={each} value={each} />)}
              </datalist>
            </label>
          ))}
          <label>From<input type="date" value={parameters.get("from") ?? ""} onChange={(event) => onChange({ from: event.target.value })} /></label>
          <label>To<input type="date" value={parameters.get("to") ?? ""} onChange={(event) => onChange({ to: event.target.value })} /></label>
        </div>
      </details>
    </>
  );
}

/** The filters that this browser keeps, and a button that keeps the one that is set. */
export function SavedFilters({ parameters, onChange }: { parameters: URLSearchParams; onChange: Change }): ReactNode {
  const [saved, setSaved] = useState(readSaved);
  const current = onlyFilters(parameters);
  const isSaved = saved.includes(current);
  const store = (next: string[]) => {
    setSaved(next);
    localStorage.setItem(STORED_FILTERS, JSON.stringify(next));
  };
  return (
    <>
      {saved.map((each) => (
        <button
          key={each}
          type="button"
          className="chip"
          aria-pressed={current === each}
          onClick={() => onChange({ ...clearedFilters(), ...(current === each ? {} : Object.fromEntries(new URLSearchParams(each))) })}
        >
          <Safe text={[...new URLSearchParams(each).values()].join(" ").slice(0, 24)} />
        </button>
      ))}
      {current && (
        <button type="button" className="link" onClick={() => store(isSaved ? saved.filter((each) => each !== current) : [...saved, current].slice(-MOST_SAVED))}>
          {isSaved ? "Remove filter" : "Save filter"}
        </button>
      )}
    </>
  );
}

function onlyFilters(parameters: URLSearchParams): string {
  return String(new URLSearchParams(APPROVAL_FILTERS.flatMap((name) => (parameters.get(name) ? [[name, parameters.get(name) ?? ""]] : []))));
}

function readSaved(): string[] {
  try {
    const read: unknown = JSON.parse(localStorage.getItem(STORED_FILTERS) ?? "[]");
    const texts = Array.isArray(read) ? read.filter((each): each is string => typeof each === "string") : [];
    return texts.map((each) => onlyFilters(new URLSearchParams(each))).filter(Boolean);
  } catch {
    return [];
  }
}
