// The prompts of a query: of each agent the assembled prompt that its model gets, and the calls that sent it.
import type { ReactNode } from "react";
import { Link } from "wouter";

import type { QueryView, WorkItem } from "../../../sdk/typescript/src/index.js";
import { Badge, Empty, Panel } from "../components.js";
import { bytes, count, money, time, tokens } from "../format.js";
import { asObject, asText } from "../inbox/data.js";
import { ModelText, Safe, ToolText } from "../text.js";
import { AgentPrompt } from "../system/prompt.js";

/** Return the model calls of a query, by agent, in the order of the first call of each agent. */
function callsByAgent(work: readonly WorkItem[]): Map<string, WorkItem[]> {
  const calls = new Map<string, WorkItem[]>();
  for (const item of work) if (item.kind === "model_call") calls.set(item.agent, [...(calls.get(item.agent) ?? []), item]);
  return calls;
}

export function Prompts({ query, work }: { query: QueryView; work: readonly WorkItem[] }): ReactNode {
  const agents = [...callsByAgent(work)];
  if (agents.length === 0) return <Empty title="No model was called" />;
  return (
    <div className="stack">
      <p className="meta">
        A call sends the system prompt of its agent, its tools, and the messages so far.{" "}
        <Link href={`/threads/${query.threadId}?tab=messages`} className="link">Messages of the thread</Link>
      </p>
      {agents.map(([agent, calls]) => (
        <div key={agent} className="stack">
          <AgentPrompt runtimeId={query.runtimeId} agent={agent} />
          <Calls agent={agent} calls={calls} />
        </div>
      ))}
    </div>
  );
}

function Calls({ agent, calls }: { agent: string; calls: readonly WorkItem[] }): ReactNode {
  return (
    <Panel title={<>Model calls of <Safe text={agent} limit={80} /></>} note={count(calls.length, "call")}>
      <div className="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">Model</th><th scope="col">Status</th><th scope="col" className="number">Prompt</th>
              <th scope="col" className="number">Tokens in</th><th scope="col" className="number">From cache</th>
              <th scope="col" className="number">Tokens out</th><th scope="col" className="number">Cost</th><th scope="col" className="number">At</th>
            </tr>
          </thead>
          <tbody>{calls.map((call) => <CallRow key={call.id} call={call} />)}</tbody>
        </table>
      </div>
    </Panel>
  );
}

function CallRow({ call }: { call: WorkItem }): ReactNode {
  const input = asObject(call.input);
  const dropped = Number(asText(asObject(input.leftOut).turns));
  const [objection, notes] = [asText(input.objection), asText(input.notes)];
  return (
    <>
      <tr>
        <td><Safe text={call.model ?? call.name} limit={60} /></td>
        <td><Badge status={call.status} /></td>
        <td className="number">{input.promptBytes === undefined ? "" : bytes(Number(asText(input.promptBytes)))}</td>
        <td className="number">{tokens(call.usage?.inputTokens ?? 0)}</td>
        <td className="number">{tokens(call.usage?.cacheReadTokens ?? 0)}</td>
        <td className="number">{tokens(call.usage?.outputTokens ?? 0)}</td>
        <td className="number">{call.costUsd === null ? "–" : money(call.costUsd)}</td>
        <td className="number">{time(call.startedAt)}</td>
      </tr>
      {(dropped > 0 || objection || notes) && (
        <tr>
          <td colSpan={8}>
            {dropped > 0 && <p className="meta">The {count(dropped, "oldest turn", "oldest turns")} did not fit and {dropped === 1 ? "was" : "were"} left out.</p>}
            {notes && <ToolText from="the runtime: notes that this call began with"><p className="prose"><Safe text={notes} limit={2000} /></p></ToolText>}
            {objection && <ModelText by="the service's objection to the answer before, which may quote it" text={objection} />}
          </td>
        </tr>
      )}
    </>
  );
}
