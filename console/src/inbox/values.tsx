// The values that an approval stored, whole, and the references that a plan names, by glimpse.
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { ExactNumber, parseExact, sha256Hex } from "../../../sdk/typescript/src/index.js";
import { RequestFailed, readExact } from "../api.js";
import { Failed, Loading, Note, Panel, Segments } from "../components.js";
import { isObject } from "../exact.js";
import { bytes, count, shortId, whole } from "../format.js";
import { Inline, Json, Safe, ToolText, compact } from "../text.js";
import { asList, asObject, asText } from "./data.js";

const ROWS = 50;
const PAGE_CHARS = 65_536;
const LARGE_BYTES = 2_000_000;

export interface StoredVariable {
  variable: string;
  type: string | undefined;
  sizeBytes: number | undefined;
  /** The SHA-256 of the stored value, which the digest of the subject covers. */
  digest: string | undefined;
  glimpse: unknown;
  resultOf: number[] | undefined;
}

export function parseVariables(value: unknown): StoredVariable[] {
  return asList(value).map((item) => {
    const variable = asObject(item);
    return {
      variable: asText(variable.variable),
      type: typeof variable.type === "string" ? variable.type : undefined,
      sizeBytes: variable.sizeBytes === undefined || variable.sizeBytes === null ? undefined : Number(asText(variable.sizeBytes)),
      digest: typeof variable.digest === "string" ? variable.digest : undefined,
      glimpse: variable.glimpse,
      resultOf: Array.isArray(variable.resultOf) ? variable.resultOf.map((each) => Number(asText(each))) : undefined,
    };
  });
}

/** Say in a few words what a variable stands for. */
export function describeVariable(variable: StoredVariable): string {
  if (variable.resultOf) return `result of ${variable.resultOf.length > 3 ? `${variable.resultOf[0]} to ${variable.resultOf.at(-1)}` : variable.resultOf.join(", ")}`;
  const glimpse = variable.glimpse;
  if (typeof glimpse === "string" || glimpse instanceof ExactNumber) return compact(glimpse).slice(0, 60);
  const size = variable.sizeBytes === undefined ? "" : bytes(variable.sizeBytes);
  return [variable.type ?? "", size].filter(Boolean).join(", ");
}

export function ValuesPanel(props: {
  approvalId: string;
  variables: readonly StoredVariable[];
  opened: ReadonlySet<string>;
  selected: string | undefined;
  onOpen: (variable: string) => void;
}): ReactNode {
  const { variables, opened } = props;
  const stored = variables.filter((each) => !each.resultOf);
  const unopened = stored.filter((each) => !opened.has(each.variable)).length;
  const current = variables.find((each) => each.variable === props.selected);
  return (
    <Panel
      id="values"
      title="Values"
      note={`${count(variables.length, "path")}, as stored when approval was requested. Later changes do not reach this plan.`}
      end={unopened > 0 && <span className="tag changed">{unopened} not opened</span>}
    >
      <div className="values">
        <ul>
          {variables.map((each) => (
            <li key={each.variable}>
              <button
                type="button"
                aria-current={each.variable === props.selected ? "true" : undefined}
                onClick={() => props.onOpen(each.variable)}
              >
                <span className="mono"><Safe text={each.variable} limit={80} /></span>
                <span className="meta"><Safe text={describeVariable(each)} limit={60} /></span>
                {!each.resultOf && !opened.has(each.variable) && (
                  <span className="unopened"><span className="hidden-text">not opened</span></span>
                )}
              </button>
            </li>
          ))}
        </ul>
        <div className="viewer">
          {current ? (
            <Viewer key={current.variable} approvalId={props.approvalId} variable={current} />
          ) : (
            <p className="meta body">Open a path to see the value that was stored. <kbd>V</kbd> opens the next one.</p>
          )}
        </div>
      </div>
    </Panel>
  );
}

function Viewer({ approvalId, variable }: { approvalId: string; variable: StoredVariable }): ReactNode {
  const [large, setLarge] = useState((variable.sizeBytes ?? 0) > LARGE_BYTES);
  const value = useQuery({
    queryKey: ["value", approvalId, variable.variable],
    enabled: !variable.resultOf && !large,
    staleTime: Infinity,
    queryFn: ({ signal }) => readStoredValue(approvalId, variable, signal),
    retry: false,
  });
  if (variable.resultOf) {
    return (
      <p className="meta body">
        Not known before execution: it will be the result of {variable.resultOf.length === 1 ? "action" : "actions"}{" "}
        {variable.resultOf.join(", ")}.
      </p>
    );
  }
  if (large) {
    return (
      <div className="body stack">
        <p className="meta">This value has {bytes(variable.sizeBytes ?? 0)}. Its glimpse:</p>
        <Json value={variable.glimpse} />
        <button type="button" className="button" onClick={() => setLarge(false)}>Read all of it</button>
      </div>
    );
  }
  if (value.data && !value.data.matches) {
    return <Note tone="bad" live><b>The value is not the one that the digest covers.</b> Do not approve; read the subject again.</Note>;
  }
  if (value.data) {
    return <ValueView name={variable.variable} value={value.data.value} size={variable.sizeBytes} />;
  }
  if (!value.error) return <Loading what="the value" />;
  const gone = value.error instanceof RequestFailed && (value.error.status === 404 || value.error.status === 410);
  if (!gone) return <Failed what="The value could not be read" error={value.error} onRetry={() => void value.refetch()} />;
  return (
    <div className="body stack">
      <p className="meta">Only the glimpse of this value is available.</p>
      <Json value={variable.glimpse} />
    </div>
  );
}

/** Read all pages of a stored value, and compare its digest with the one in the subject. */
async function readStoredValue(approvalId: string, variable: StoredVariable, signal: AbortSignal): Promise<{ value: unknown; matches: boolean }> {
  const path = `approvals/${encodeURIComponent(approvalId)}/values?path=${encodeURIComponent(variable.variable)}&limit=${PAGE_CHARS}`;
  const texts: string[] = [];
  let cursor = "";
  do {
    const page = asObject(await readExact(cursor ? `${path}&cursor=${encodeURIComponent(cursor)}` : path, signal));
    texts.push(asText(page.text));
    cursor = asText(page.nextCursor);
  } while (cursor !== "");
  const text = texts.join("");
  const matches = (await sha256Hex(new TextEncoder().encode(text))) === variable.digest;
  return { value: matches ? parseExact(text) : undefined, matches };
}

interface Paging {
  /** The index of the first row of `value`. */
  first: number;
  total: number;
  onMove: (first: number) => void;
}

/** A value as a table or as JSON, 50 rows a page. With `paging`, the value is one page, and others are read on request. */
export function ValueView(props: { name: string; value: unknown; size?: number | undefined; paging?: Paging | undefined }): ReactNode {
  const rows = Array.isArray(props.value) ? (props.value as unknown[]) : undefined;
  const columns = rows && rows.length > 0 && rows.every(isObject)
    ? [...new Set(rows.slice(0, 200).flatMap((row) => Object.keys(row as object)))]
    : undefined;
  const [view, setView] = useState<"table" | "json">("table");
  const [page, setPage] = useState(0);
  const { paging } = props;
  const first = paging?.first ?? page * ROWS;
  const total = paging?.total ?? rows?.length ?? 0;
  const part = paging ? rows : rows?.slice(first, first + ROWS);
  const move = (to: number) => (paging ? paging.onMove(to) : setPage(to / ROWS));
  const text = () => `${props.value === undefined ? "" : compact(props.value)}`;
  return (
    <>
      <header>
        <span className="mono"><Safe text={props.name} limit={80} /></span>
        <span className="end">
          {columns && <Segments label="View of the value" value={view} onChange={setView} options={[["table", "Table"], ["json", "JSON"]]} />}
          <CopyButton text={text} label="Copy" />
        </span>
      </header>
      {view === "table" && columns && part ? (
        <div className="scroll" role="region" aria-label="Rows" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th scope="col">#</th>
                {columns.map((column) => <th key={column} scope="col" className="mono"><Safe text={column} limit={40} /></th>)}
              </tr>
            </thead>
            <tbody>
              {part.map((row, index) => (
                <tr key={first + index}>
                  <td className="mono faint">{first + index}</td>
                  {columns.map((column) => {
                    const cell = (row as Record<string, unknown>)[column];
                    return <td key={column}>{cell === undefined ? null : <Inline value={cell} />}</td>;
                  })}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <div className="body"><Json value={part ?? props.value} /></div>
      )}
      {rows && (
        <footer className="meta">
          {total === 0 ? "0 items" : `${whole(first + 1)}–${whole(first + (part?.length ?? 0))} of ${whole(total)}`}
          {props.size !== undefined && `, ${bytes(props.size)}`}
          <span className="end">
            <button type="button" className="button" disabled={first === 0} onClick={() => move(Math.max(first - ROWS, 0))}>Previous</button>
            <button type="button" className="button" disabled={first + (part?.length ?? 0) >= total} onClick={() => move(first + (part?.length ?? 0))}>Next</button>
          </span>
        </footer>
      )}
    </>
  );
}

export function CopyButton({ text, label }: { text: () => string; label: string }): ReactNode {
  const [done, setDone] = useState(false);
  return (
    <button
      type="button"
      className="button quiet"
      onClick={() => {
        void navigator.clipboard?.writeText(text()).then(() => {
          setDone(true);
          setTimeout(() => setDone(false), 1500);
        });
      }}
    >
      {done ? "Copied" : label}
    </button>
  );
}

export interface NamedReference {
  kind: string;
  id: string;
  sizeBytes: number;
  glimpse: unknown;
}

export function parseReferences(value: unknown): NamedReference[] {
  return asList(value).map((item) => {
    const reference = asObject(item);
    return { kind: asText(reference.kind), id: asText(reference.id), sizeBytes: Number(asText(reference.sizeBytes)), glimpse: reference.glimpse };
  });
}

/** A reference by its glimpse, and parts of the value on request. */
export function ReferenceCard({ reference }: { reference: NamedReference }): ReactNode {
  const [open, setOpen] = useState(false);
  const glimpse = asObject(reference.glimpse);
  const fields = Object.entries(glimpse);
  return (
    <Panel
      title="Reference"
      note={<><span className="mono"><Safe text={reference.kind} limit={60} /> {shortId(reference.id)}</span>, {bytes(reference.sizeBytes)}</>}
      end={!open && <button type="button" className="button" onClick={() => setOpen(true)}>Read in part</button>}
    >
      <div className="body">
        <ToolText from="the stored value: its glimpse">
          {fields.length > 0 ? (
            <dl className="glimpse">
              {fields.map(([name, item]) => (
                <div key={name}>
                  <dt><Safe text={name} limit={60} /></dt>
                  <dd><Inline value={item} /></dd>
                </div>
              ))}
            </dl>
          ) : (
            <Json value={reference.glimpse} />
          )}
        </ToolText>
      </div>
      {open && <Parts reference={reference} />}
    </Panel>
  );
}

type Part =
  | { kind: "list"; total: number; first: number; rows: unknown[] }
  | { kind: "value"; value: unknown }
  /** Too large to be read at once: the names of its fields lead on. */
  | { kind: "large"; type: string; names: string[] };

/** Read what a path leads to: of a list 50 items, or fewer if these are too large. */
async function readPart(reference: NamedReference, path: string, first: number, signal: AbortSignal): Promise<Part> {
  const address = `references/${encodeURIComponent(reference.kind)}/${encodeURIComponent(reference.id)}/part?path=`;
  const read = (expression: string) => readExact(address + encodeURIComponent(expression), signal);
  const isTooLarge = (error: unknown) => error instanceof RequestFailed && error.status === 413;
  const at = path === "@" ? "" : `${path} | `;
  const type = asText(await read(`${at}type(@)`));
  if (type === "array") {
    const total = Number(asText(await read(`${at}length(@)`)));
    for (let rows = ROWS; ; rows = Math.floor(rows / 4)) {
      try {
        return { kind: "list", total, first, rows: asList(await read(`${at}@[${first}:${first + rows}]`)) };
      } catch (error) {
        if (!isTooLarge(error) || rows < 4) throw error;
      }
    }
  }
  try {
    return { kind: "value", value: await read(path) };
  } catch (error) {
    if (!isTooLarge(error)) throw error;
    return { kind: "large", type, names: type === "object" ? asList(await read(`${at}keys(@)`)).map(asText) : [] };
  }
}

/** Parts of a stored value. The service selects them by a path, so a large value is never read as a whole. */
function Parts({ reference }: { reference: NamedReference }): ReactNode {
  const [typed, setTyped] = useState("@");
  const [at, setAt] = useState({ path: "@", first: 0 });
  const part = useQuery({
    queryKey: ["reference", reference.kind, reference.id, "part", at.path, at.first],
    staleTime: Infinity,
    retry: false,
    queryFn: ({ signal }) => readPart(reference, at.path, at.first, signal),
    placeholderData: (before, query) => (query?.queryKey[4] === at.path ? before : undefined),
  });
  const open = (path: string) => {
    setTyped(path);
    setAt({ path, first: 0 });
  };
  const field = `part-${reference.id}`;
  return (
    <div className="viewer">
      <form
        className="search-row body"
        onSubmit={(event) => {
          event.preventDefault();
          open(typed.trim() || "@");
        }}
      >
        <label htmlFor={field} className="meta">Path</label>
        <input id={field} className="mono" value={typed} spellCheck={false} placeholder="rows[0].carrier" onChange={(event) => setTyped(event.target.value)} />
        <button className="button">Read</button>
      </form>
      {part.error ? <Failed what="That part could not be read" error={part.error} /> : !part.data ? <Loading what="the value" /> : null}
      {part.data?.kind === "list" && (
        <ValueView name={at.path} value={part.data.rows} paging={{ first: part.data.first, total: part.data.total, onMove: (first) => setAt({ path: at.path, first }) }} />
      )}
      {part.data?.kind === "value" && <ValueView name={at.path} value={part.data.value} />}
      {part.data?.kind === "large" && (
        <div className="body stack">
          <p className="meta">This {part.data.type} is too large to be read at once. {part.data.names.length > 0 ? "Open one of its fields:" : "Choose a part with a path."}</p>
          <ul className="people">
            {part.data.names.slice(0, 200).map((name) => (
              <li key={name}><button type="button" className="link mono" onClick={() => open(`${at.path === "@" ? "" : `${at.path}.`}${JSON.stringify(name)}`)}><Safe text={name} limit={80} /></button></li>
            ))}
          </ul>
        </div>
      )}
    </div>
  );
}
