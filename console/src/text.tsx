// Text that somebody else wrote: always text, with every character visible.
import { Sparkles, Wrench } from "lucide-react";
import { memo, useState, type ReactNode } from "react";

import { ExactNumber } from "../../sdk/typescript/src/index.js";
import { splitText } from "./characters.js";

const LONG_CHARS = 4000;

/** Text as it is: no markup, no direction of its own, each deceptive character as a chip. */
export const Safe = memo(function Safe({ text, limit }: { text: string; limit?: number }): ReactNode {
  const [whole, setWhole] = useState(false);
  const most = limit ?? LONG_CHARS;
  const shown = whole || text.length <= most ? text : text.slice(0, most);
  return (
    <bdi dir="ltr" className="safe">
      {splitText(shown).map((piece, index) => {
        if (piece.kind === "text") return piece.text;
        if (piece.kind === "hidden") {
          return (
            <span key={index} className="hidden-character" title={`Hidden character ${piece.code} ${piece.name}`}>
              {`${piece.code} ${piece.name}`.trim()}
            </span>
          );
        }
        return (
          <span key={index} className="lookalike" title={`“${piece.text}” is ${piece.code}: ${piece.why}`}>
            {piece.text}
            <span className="code">{piece.code}</span>
          </span>
        );
      })}
      {shown.length < text.length && (
        <button type="button" className="link" onClick={() => setWhole(true)}>
          … {text.length - shown.length} more characters
        </button>
      )}
    </bdi>
  );
});

/** Prose of a model, in the container that nothing else uses. */
export function ModelText({ by, text, streaming }: { by: string; text: string; streaming?: boolean }): ReactNode {
  return (
    <div className="model" role="group" aria-label={`Written by a model: ${by}`}>
      <p className="by">
        <Sparkles aria-hidden size={12} /> Written by a model: <Safe text={by} />
      </p>
      <p className="prose">
        <Safe text={text} />
        {streaming && <span className="caret" aria-hidden />}
      </p>
    </div>
  );
}

/** What a tool, a file or a stored value contains. */
export function ToolText({ from, children }: { from: string; children: ReactNode }): ReactNode {
  return (
    <div className="model" role="group" aria-label={`From ${from}`}>
      <p className="by">
        <Wrench aria-hidden size={12} /> From <Safe text={from} />
      </p>
      {children}
    </div>
  );
}

/** A short value in a row of arguments. */
export function Inline({ value }: { value: unknown }): ReactNode {
  if (typeof value === "string") {
    if (value.startsWith("†")) return <span className="mono variable"><Safe text={value} /></span>;
    const free = value.length > 40 || /\s/.test(value);
    return (
      <span className={free ? "mono written" : "mono"}>
        &quot;
        <Safe text={value} limit={400} />
        &quot;
      </span>
    );
  }
  return (
    <span className="mono">
      <Safe text={compact(value)} limit={400} />
    </span>
  );
}

/** Write a value on one line. */
export function compact(value: unknown): string {
  if (value instanceof ExactNumber) return value.digits;
  if (Array.isArray(value)) return `[${value.map(compact).join(", ")}]`;
  if (typeof value === "object" && value !== null) {
    return `{${Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${compact(item)}`).join(", ")}}`;
  }
  return JSON.stringify(value) ?? "null";
}

const OPEN_DEPTH = 3;
const PAGE = 100;

/** A JSON value that folds. Numbers keep their digits. */
export function Json({ value, depth = 0 }: { value: unknown; depth?: number }): ReactNode {
  const [most, setMost] = useState(PAGE);
  if (value instanceof ExactNumber) return <span className="json-number">{value.digits}</span>;
  if (typeof value === "string") {
    return (
      <span className="json-string">
        &quot;
        <Safe text={value} />
        &quot;
      </span>
    );
  }
  if (typeof value !== "object" || value === null) return <span className="json-number">{String(value)}</span>;
  const entries: [string, unknown][] = Object.entries(value);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) return <span>{open + close}</span>;
  return (
    <details className="json" open={depth < OPEN_DEPTH && entries.length <= PAGE}>
      <summary>
        {open}
        <span className="faint">
          {" "}
          {entries.length} {Array.isArray(value) ? "items" : "fields"} {close}
        </span>
      </summary>
      <ul>
        {entries.slice(0, most).map(([key, item]) => (
          <li key={key}>
            <span className="json-key">
              <Safe text={key} />:{" "}
            </span>
            <Json value={item} depth={depth + 1} />
          </li>
        ))}
        {entries.length > most && (
          <li>
            <button type="button" className="link" onClick={() => setMost(most + PAGE * 5)}>
              {entries.length - most} more
            </button>
          </li>
        )}
      </ul>
      <span>{close}</span>
    </details>
  );
}
