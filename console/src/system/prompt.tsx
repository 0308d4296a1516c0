// The prompt of an agent as its model gets it: all layers put together.
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { readAgentPrompt } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Empty, Loaded, Panel } from "../components.js";
import { whole } from "../format.js";
import { CopyButton } from "../inbox/values.js";
import { Safe } from "../text.js";

export function AgentPrompt({ runtimeId, agent }: { runtimeId: string; agent: string }): ReactNode {
  const found = useQuery({
    queryKey: ["runtimes", runtimeId, "prompt", agent],
    staleTime: Infinity,
    queryFn: async () => (await readAgentPrompt(call({ path: { runtime_id: runtimeId, agent } }))).data,
  });
  return (
    <Panel title={<Safe text={agent} limit={80} />} note={found.data && `system prompt, ${whole(found.data.text.length)} characters`} end={found.data && <CopyButton label="Copy" text={() => found.data.text} />}>
      <Loaded what="prompt" query={found}>{(data) => data.text ? <pre className="bytes"><Safe text={data.text} limit={20_000} /></pre> : <Empty title="This agent has no prompt" />}</Loaded>
    </Panel>
  );
}
