// The files that an approval names: those that it reads, publishes or writes, each with a preview.
import { useQueries, useQuery } from "@tanstack/react-query";
import { Suspense, lazy, useMemo, useState, type ReactNode } from "react";
import { Link } from "wouter";

import { listFiles, readArtifact, type ApprovalInfo, type ArtifactInfo, type FileView } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Loading, Panel } from "../components.js";
import { bytes, shortId } from "../format.js";
import { Safe } from "../text.js";
import { readPages } from "./data.js";

const Preview = lazy(async () => ({ default: (await import("../records/preview.js")).Preview }));
const TextPreview = lazy(async () => ({ default: (await import("../records/preview.js")).TextPreview }));

const MOST_NAMES = 2000;
const MOST_NAME_CHARS = 1000;
const MOST_FILES = 1000;
const MOST_ARTIFACTS = 20;
const MOST_LISTED = 50;
const ARTIFACT_ID = /^art_[0-9a-z]{20,40}$/;
const PATH_FIELD = /path|file|dir|folder/i;

/** What the built-in tools of files do with the file at `path`. */
const USES: Readonly<Record<string, string>> = {
  read: "Reads", edit: "Changes", write: "Writes", artifact_publish: "Publishes", artifact_withdraw: "Withdraws", artifact_choose: "Chooses",
};

interface Named {
  /** Texts of all fields: each may be the path of a file or the id of an artifact. */
  texts: ReadonlySet<string>;
  /** Texts of fields whose name says that they hold a path: each may also be a directory. */
  paths: ReadonlySet<string>;
}

/** Collect the texts in a value. */
function namesIn(value: unknown): Named {
  const [texts, paths] = [new Set<string>(), new Set<string>()];
  const visit = (each: unknown, field: string): void => {
    if (texts.size >= MOST_NAMES) return;
    if (typeof each === "string") {
      if (!each || each.length > MOST_NAME_CHARS) return;
      texts.add(each);
      if (PATH_FIELD.test(field)) paths.add(each.replace(/\/+$/, ""));
    } else if (Array.isArray(each)) for (const item of each) visit(item, field);
    else if (typeof each === "object" && each !== null) for (const [name, item] of Object.entries(each)) visit(item, name);
  };
  visit(value, "");
  return { texts, paths };
}

function isNamed(path: string, { texts, paths }: Named): boolean {
  if (texts.has(path)) return true;
  for (let end = path.lastIndexOf("/"); end > 0; end = path.lastIndexOf("/", end - 1)) if (paths.has(path.slice(0, end))) return true;
  return false;
}

interface Listed {
  key: string;
  use: string | undefined;
  name: ReactNode;
  note: ReactNode;
  size: number | null | undefined;
  preview: (() => ReactNode) | undefined;
}

function listFile(file: FileView, use: string | undefined): Listed {
  const address = `threads/${encodeURIComponent(file.threadId)}/files/${file.path.split("/").map(encodeURIComponent).join("/")}?version=${file.version}`;
  return {
    key: file.path,
    use,
    name: <span className="mono"><Safe text={file.path} limit={200} /></span>,
    note: <>version {file.version} by <Safe text={file.writtenBy} limit={40} /></>,
    size: file.sizeBytes,
    preview: () => <Preview path={address} name={file.path} sizeBytes={file.sizeBytes} from={`file ${file.path}, version ${file.version}`} />,
  };
}

function listArtifact(artifact: ArtifactInfo, use: string | undefined): Listed {
  return {
    key: artifact.id,
    use,
    name: <Link href={`/artifacts/${artifact.id}`} className="link"><Safe text={artifact.title ?? artifact.path} limit={120} /></Link>,
    note: <>artifact {shortId(artifact.id)} of <Safe text={artifact.channel} limit={40} />, <span className="mono"><Safe text={artifact.path} limit={120} /></span></>,
    size: artifact.sizeBytes,
    preview: artifact.isDirectory ? undefined : () => <Preview path={`artifacts/${artifact.id}/content`} name={artifact.path} sizeBytes={artifact.sizeBytes} from={`artifact ${artifact.path}`} />,
  };
}

/** Show the files that `value`, the arguments of a call or the body of a plan, names. Show nothing if there are none. */
export function NamedFiles({ approval, value }: { approval: ApprovalInfo; value: Record<string, unknown> }): ReactNode {
  const named = useMemo(() => namesIn(value), [value]);
  const files = useQuery({
    queryKey: ["thread", approval.threadId, "files"],
    enabled: named.texts.size > 0,
    queryFn: () => readPages(
      async (cursor) => (await listFiles(call({ path: { thread_id: approval.threadId }, query: { limit: 200, ...(cursor !== undefined && { cursor }) } }))).data,
      MOST_FILES,
    ),
  }).data;
  const ids = [...named.texts].filter((text) => ARTIFACT_ID.test(text)).slice(0, MOST_ARTIFACTS);
  const artifacts = useQueries({
    queries: ids.map((id) => ({ queryKey: ["artifacts", id], retry: false, queryFn: async () => (await readArtifact(call({ path: { artifact_id: id } }))).data })),
  }).flatMap((found) => found.data ?? []);
  const use = approval.kind === "tool" ? USES[approval.target] : undefined;
  const path = use !== undefined && typeof value.path === "string" ? value.path : undefined;
  const content = path !== undefined && approval.target === "write" && typeof value.content === "string" ? value.content : undefined;
  const found = (files ?? []).filter((file) => isNamed(file.path, named));
  const listed: Listed[] = [];
  if (path !== undefined && content !== undefined) {
    const current = found.find((file) => file.path === path);
    listed.push({
      key: `new ${path}`,
      use,
      name: <span className="mono"><Safe text={path} limit={200} /></span>,
      note: current ? `replaces version ${current.version}` : "new content, from the arguments",
      size: new TextEncoder().encode(content).length,
      preview: () => <TextPreview text={content} name={path} from={`the arguments, written by ${approval.agent ?? "a model"}`} />,
    });
  }
  listed.push(...found.map((file) => listFile(file, content !== undefined && file.path === path ? "Replaces" : use)), ...artifacts.map((each) => listArtifact(each, use)));
  const isMissing = files !== undefined && path !== undefined && content === undefined && found.length === 0;
  if (isMissing) {
    listed.push({ key: `missing ${path}`, use, name: <span className="mono"><Safe text={path} limit={200} /></span>, note: "The thread has no file at this path now.", size: undefined, preview: undefined });
  }
  return listed.length > 0 ? <FileTable listed={listed} /> : null;
}

function FileTable({ listed }: { listed: readonly Listed[] }): ReactNode {
  const [open, setOpen] = useState<string | undefined>();
  const [all, setAll] = useState(false);
  const shown = all ? listed : listed.slice(0, MOST_LISTED);
  const opened = listed.find((each) => each.key === (open ?? listed[0]?.key));
  const withUse = listed.some((each) => each.use !== undefined);
  return (
    <Panel title="Files" note="as they are now; the digest covers their names, not what is stored in them">
      <div className="scroll">
        <table>
          <thead><tr>{withUse && <th scope="col">Use</th>}<th scope="col">File</th><th scope="col">Is</th><th scope="col" className="number">Size</th><th scope="col"><span className="hidden-text">Preview</span></th></tr></thead>
          <tbody>
            {shown.map((each) => (
              <tr key={each.key}>
                {withUse && <td>{each.use}</td>}
                <td>{each.name}</td>
                <td className="meta">{each.note}</td>
                <td className="number">{typeof each.size === "number" ? bytes(each.size) : ""}</td>
                <td>{each.preview && listed.length > 1 && <button type="button" className="button" aria-pressed={each === opened} onClick={() => setOpen(each.key)}>Preview</button>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown.length < listed.length && <p className="body"><button type="button" className="button" onClick={() => setAll(true)}>Show {listed.length - shown.length} more files</button></p>}
      {opened?.preview && <Suspense fallback={<Loading what="the preview" />}><div key={opened.key}>{opened.preview()}</div></Suspense>}
    </Panel>
  );
}
