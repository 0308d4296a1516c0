// The main job against a real service: PLANGATE_URL and PLANGATE_API_KEY. Prints one line of JSON.
import { connect, listQueryWork, readPlan, registerRuntime, type RegisterRuntimeData } from "plangate";

const plangate = connect({ url: process.env["PLANGATE_URL"] ?? "", key: process.env["PLANGATE_API_KEY"] ?? "" });
const { client } = plangate;

const notify = {
  type: "object",
  properties: { kind: { const: "notify" }, to: { type: "string" }, cents: { type: "integer" } },
  required: ["kind", "to", "cents"],
  additionalProperties: false,
};
const spec: RegisterRuntimeData["body"] = {
  name: "main-job",
  tenant: { resourceId: "local", version: "1" },
  interpreter: "scripted",
  agents: [
    { name: "desk", role: "coordinator", model: "none", systemPrompt: "Route.", routes: ["planner", "sender"] },
    { name: "planner", role: "planner", model: "none", systemPrompt: "Plan.", plan: "Notices", tools: ["look_up"] },
    { name: "sender", role: "executor", model: "none", systemPrompt: "Send.", plan: "Notices" },
  ],
  tools: [
    {
      name: "look_up",
      description: "Look a person up.",
      transport: "client",
      inputSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
    },
  ],
  plans: [
    {
      name: "Notices",
      schema: {
        type: "object",
        properties: { actions: { type: "array", items: { oneOf: [notify], discriminator: { propertyName: "kind" } } } },
        required: ["actions"],
        additionalProperties: false,
      },
    },
  ],
  actionDispatcher: { kind: "client" },
};

const registered = await registerRuntime({ client, body: spec, throwOnError: true });
const actions = [{ kind: "notify", to: "ann", cents: 9007199254740991 }];
const prompt = JSON.stringify({
  script: [
    {
      tool: "call_agent",
      args: {
        agent: "planner",
        prompt: {
          script: [
            { tool: "look_up", args: { name: "ann" } },
            { tool: "storePlan", args: { specName: "Notices", planId: "first", body: { actions } } },
          ],
        },
      },
    },
    {
      tool: "call_agent",
      args: { agent: "sender", prompt: { script: [{ tool: "executePlan", args: { planId: "first" } }] } },
    },
  ],
});

const calls: unknown[] = [];
const sent: unknown[] = [];
const server = plangate.serve({
  tools: {
    look_up: async (args: { name: string }, ctx) => {
      await ctx.progress("reading", { phaseIndex: 1, totalPhases: 1, milestone: true });
      await ctx.emit("address-read", { name: args.name });
      calls.push({ args, toolUseId: ctx.toolUseId, agent: ctx.agent });
      return { address: `${args.name}@example.com` };
    },
  },
  actions: (dispatched, ctx) => {
    sent.push(...dispatched.map((action: { payload: unknown }) => action.payload));
    return { entitiesAffected: dispatched.length, summary: `attempt ${ctx.attempt}` };
  },
});

// The first connection is left in the middle; a second one resumes after its last event.
const started = plangate.startQuery({ runtimeId: registered.data.id, prompt });
const types: string[] = [];
const seqs: number[] = [];
for await (const event of started) {
  types.push(event.type);
  seqs.push(event.seq);
  if (event.type === "approval-required") break;
}
const queryId = started.queryId ?? "";
let planId = "";
let output: unknown;
let digest = "";
const resumed = plangate.stream(queryId, { ...(started.cursor && { after: started.cursor }) });
const pending = await client.get<{ items: { id: string }[] }>({ url: "/approvals", query: { queryId, status: "pending" } });
const approvalId = (pending.data as { items: { id: string }[] } | undefined)?.items[0]?.id ?? "";
const subject = await plangate.readSubject(approvalId);
digest = subject.digest;
await plangate.approve(approvalId, subject.bytes);
for await (const event of resumed) {
  types.push(event.type);
  seqs.push(event.seq);
  if (event.type === "plan-status-change") planId = event.data.planId;
  if (event.type === "finish") output = event.output;
}
await server.close();

const plan = await readPlan({ client, path: { plan_id: planId }, throwOnError: true });
const work = await listQueryWork({ client, path: { query_id: queryId }, throwOnError: true });
console.log(
  JSON.stringify({ types, seqs, calls, sent, digest, output, plan: plan.data.status, work: work.data.items.length }),
);
