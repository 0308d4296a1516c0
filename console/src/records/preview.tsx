// The preview of a file: text, Markdown as text, JSON folded, CSV as a table, images from memory. Never HTML or SVG.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState, type ReactNode } from "react";

import { parseExact } from "../../../sdk/typescript/src/index.js";
import { readBytes } from "../api.js";
import { Empty, Loaded } from "../components.js";
import { bytes } from "../format.js";
import { ValueView } from "../inbox/values.js";
import { Safe, ToolText } from "../text.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"]);
const MOST_BYTES = 5_000_000;

export function Preview({ path, name, sizeBytes, from }: { path: string; name: string; sizeBytes: number | null | undefined; from: string }): ReactNode {
  const [open, setOpen] = useState((sizeBytes ?? 0) < 500_000);
  const tooLarge = (sizeBytes ?? 0) > MOST_BYTES;
  const read = useQuery({ queryKey: ["content", path], enabled: open && !tooLarge, staleTime: Infinity, queryFn: () => readBytes(path) });
  if (tooLarge) return <Empty title="Too large for a preview"><p>{bytes(sizeBytes ?? 0)}. <Download path={path} name={name} /></p></Empty>;
  if (!open) return <Empty title={`${bytes(sizeBytes ?? 0)}`}><button type="button" className="button" onClick={() => setOpen(true)}>Show a preview</button></Empty>;
  return (
    <div className="preview body">
      <Loaded what="content" query={read}>
        {(data) => (
          <ToolText from={from}>
            <Content bytes={data.bytes} mediaType={data.mediaType} name={name} />
          </ToolText>
        )}
      </Loaded>
      <Download path={path} name={name} />
    </div>
  );
}

/** The preview of a text that is not stored yet. */
export function TextPreview({ text, name, from }: { text: string; name: string; from: string }): ReactNode {
  const content = useMemo(() => new TextEncoder().encode(text), [text]);
  return <div className="preview body"><ToolText from={from}><Content bytes={content} mediaType="" name={name} /></ToolText></div>;
}

/** A button that saves the file. The content is never opened as a page. */
function Download({ path, name }: { path: string; name: string }): ReactNode {
  return (
    <button
      type="button"
      className="button"
      onClick={() => void readBytes(path).then(({ bytes: content }) => {
        const url = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
        const link = document.createElement("a");
        link.href = url;
        link.download = name.split("/").pop() ?? "file";
        link.click();
        setTimeout(() => URL.revokeObjectURL(url), 60_000);
      })}
    >
      Download
    </button>
  );
}

function Content({ bytes: content, mediaType, name }: { bytes: Uint8Array<ArrayBuffer>; mediaType: string; name: string }): ReactNode {
  if (IMAGES.has(mediaType)) return <Image bytes={content} mediaType={mediaType} name={name} />;
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    return <p className="meta">Binary, {bytes(content.length)}.</p>;
  }
  if (mediaType === "application/json" || name.endsWith(".json")) {
    try {
      return <ValueView name={name} value={parseExact(text)} />;
    } catch {
      // Not JSON after all: text.
    }
  }
  if (mediaType === "text/csv" || name.endsWith(".csv")) return <ValueView name={name} value={parseCsv(text)} />;
  return <pre className="bytes"><Safe text={text} limit={20_000} /></pre>;
}

function Image({ bytes: content, mediaType, name }: { bytes: Uint8Array<ArrayBuffer>; mediaType: string; name: string }): ReactNode {
  const [url, setUrl] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([content], { type: mediaType }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [content, mediaType]);
  return url ? <img src={url} alt={`Content of ${name}`} /> : null;
}

/** Parse CSV (RFC 4180) into a list of objects by the names in its first line. */
export function parseCsv(text: string): Record<string, string>[] {
  const rows: string[][] = [];
  let row: string[] = [];
  for (const match of text.matchAll(/(?:"((?:[^"]|"")*)"|([^,\r\n]*))(,|\r?\n|$)/gy)) {
    row.push(match[1] !== undefined ? match[1].replaceAll('""', '"') : (match[2] ?? ""));
    if (match[3] !== ",") {
      if (row.length > 1 || row[0] !== "") rows.push(row);
      row = [];
    }
    if (match[3] === "") break;
  }
  const [names = [], ...values] = rows;
  return values.map((each) => Object.fromEntries(names.map((name, index) => [name || `column ${index + 1}`, each[index] ?? ""])));
}
