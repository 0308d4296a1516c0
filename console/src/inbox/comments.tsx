// Comments on an approval: on record, never sent to a model.
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";

import { listApprovalComments, postApprovalComment, type WhoAmI } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Loaded, Panel } from "../components.js";
import { time } from "../format.js";
import { queries } from "../live.js";
import { Safe } from "../text.js";
import { readPages } from "./data.js";
import { DecisionError } from "./decide.js";

export function Comments({ approvalId, me }: { approvalId: string; me: WhoAmI }): ReactNode {
  const [text, setText] = useState("");
  const [error, setError] = useState<unknown>();
  const key = ["approval", approvalId, "comments"];
  const canComment = me.scopes.some((scope) => scope === "approvals:decide" || scope === "admin");
  const comments = useQuery({
    queryKey: key,
    enabled: canComment,
    queryFn: async () => {
      const newest = await readPages(
        async (cursor) => (await listApprovalComments(call({ path: { approval_id: approvalId }, query: { limit: 100, ...(cursor !== undefined && { cursor }) } }))).data,
      );
      return newest.reverse();
    },
  });
  if (!canComment) return null;
  function post(event: FormEvent): void {
    event.preventDefault();
    if (!text.trim()) return;
    setError(undefined);
    postApprovalComment(call({ path: { approval_id: approvalId }, body: { text: text.trim() } }))
      .then(() => {
        setText("");
        return queries.invalidateQueries({ queryKey: key });
      })
      .catch(setError);
  }
  return (
    <Panel title="Comments" note="On record. They decide nothing, and no model reads them.">
      <div className="body">
        <Loaded what="list of comments" query={comments}>
          {(items) => (
            <ul className="comments">
              {items.map((comment) => (
                <li key={comment.id}>
                  <b><Safe text={comment.principal} limit={60} /></b> <span className="meta">{time(comment.createdAt)}</span>
                  <p><Safe text={comment.text} /></p>
                </li>
              ))}
            </ul>
          )}
        </Loaded>
        <form className="search-row" onSubmit={post}>
          <label className="hidden-text" htmlFor="comment">Comment</label>
          <input id="comment" value={text} maxLength={10_000} placeholder="Add a comment" onChange={(event) => setText(event.target.value)} />
          <button className="button" disabled={!text.trim()}>Comment</button>
        </form>
        {error !== undefined && <DecisionError error={error} />}
      </div>
    </Panel>
  );
}
