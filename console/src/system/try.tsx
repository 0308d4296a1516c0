// Try it: choose a runtime and an agent, enter a prompt and inputs, send, and watch.
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";
import { useLocation, useSearchParams } from "wouter";

import { parseExact, readRuntime, submitQuery, type RuntimeView } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Empty, Loaded, Note, usePageTitle } from "../components.js";
import { isObject } from "../exact.js";
import { DecisionError } from "../inbox/decide.js";
import { Safe } from "../text.js";
import { useRuntimes } from "./runtimes.js";

export function TryPage(): ReactNode {
  usePageTitle("Try it");
  const runtimes = useRuntimes();
  const [parameters, setParameters] = useSearchParams();
  return (
    <main className="page">
      <header><h1>Try it</h1></header>
      <Loaded what="list of runtimes" query={runtimes}>
        {(items) => {
          const open = items.filter((item) => !item.retiredAt);
          const chosen = parameters.get("runtime") ?? open[0]?.id;
          if (chosen === undefined) return <Empty title="No runtime is registered" />;
          return (
            <div className="fields">
              <label>
                Runtime
                <select value={chosen} onChange={(event) => setParameters({ runtime: event.target.value })}>
                  {open.map((item) => <option key={item.id} value={item.id}>{`${item.name}, version ${item.version}`}</option>)}
                </select>
              </label>
              <Form key={chosen} id={chosen} />
            </div>
          );
        }}
      </Loaded>
    </main>
  );
}

function Form({ id }: { id: string }): ReactNode {
  const runtime = useQuery({ queryKey: ["runtimes", id], queryFn: async () => (await readRuntime(call({ path: { runtime_id: id } }))).data });
  return <Loaded what="runtime" query={runtime}>{(data) => <Fields runtime={data} />}</Loaded>;
}

interface InputField {
  name: string;
  type: string;
  options: string[] | undefined;
  description: string;
  required: boolean;
}

/** Return the fields of an input schema. What is no plain value is entered as JSON. */
export function inputFields(schema: unknown): InputField[] {
  if (!isObject(schema) || !isObject(schema.properties)) return [];
  const required = Array.isArray(schema.required) ? schema.required : [];
  return Object.entries(schema.properties).map(([name, value]) => {
    const property = isObject(value) ? value : {};
    const options = Array.isArray(property.enum) && property.enum.every((each) => typeof each === "string") ? (property.enum as string[]) : undefined;
    return {
      name,
      type: typeof property.type === "string" ? property.type : "json",
      options,
      description: typeof property.description === "string" ? property.description : "",
      required: required.includes(name),
    };
  });
}

function Fields({ runtime }: { runtime: RuntimeView }): ReactNode {
  const [, navigate] = useLocation();
  const [error, setError] = useState<unknown>();
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const fields = inputFields(runtime.spec.inputSchema);
  const scripted = runtime.spec.interpreter === "scripted";

  async function submit(event: FormEvent<HTMLFormElement>): Promise<void> {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const inputs: Record<string, unknown> = {};
    setError(undefined);
    setProblem("");
    try {
      for (const field of fields) {
        const text = String(form.get(`input.${field.name}`) ?? "");
        if (text === "" && field.type !== "boolean") continue;
        inputs[field.name] = readInput(field, text);
      }
    } catch (failure) {
      setProblem(failure instanceof Error ? failure.message : String(failure));
      return;
    }
    setBusy(true);
    try {
      const body = {
        prompt: String(form.get("prompt")),
        runtimeId: runtime.id,
        agent: String(form.get("agent")),
        ...(fields.length > 0 && { inputs }),
      };
      navigate(`/queries/${(await submitQuery(call({ body }))).data.id}`);
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  }

  return (
    <form className="fields" onSubmit={(event) => void submit(event)}>
      <label>
        Agent
        <select name="agent">{runtime.spec.agents.map((agent) => <option key={agent.name} value={agent.name}>{`${agent.name} (${agent.role})`}</option>)}</select>
      </label>
      {scripted && <Note tone="plain">This runtime follows scripts: its prompt is JSON such as <code>{'{"tool": "name", "args": {}}'}</code>.</Note>}
      <label>Prompt<textarea name="prompt" required rows={5} /></label>
      {fields.map((field) => (
        <div key={field.name} className="field">
          <label htmlFor={`input.${field.name}`}><Safe text={field.name} limit={80} /> <span className="meta">{field.type}{field.required && ", required"} <Safe text={field.description} limit={200} /></span></label>
          <InputControl field={field} />
        </div>
      ))}
      {problem && <p className="note bad" role="alert">{problem}</p>}
      {error !== undefined && <DecisionError error={error} />}
      <div><button className="button primary big" disabled={busy}>Send</button></div>
    </form>
  );
}

function InputControl({ field }: { field: InputField }): ReactNode {
  const name = `input.${field.name}`;
  if (field.options) return <select id={name} name={name} required={field.required}>{!field.required && <option value="" />}{field.options.map((each) => <option key={each}>{each}</option>)}</select>;
  if (field.type === "boolean") return <input id={name} name={name} type="checkbox" />;
  if (field.type === "integer" || field.type === "number") return <input id={name} name={name} inputMode="decimal" required={field.required} />;
  if (field.type === "string") return <input id={name} name={name} required={field.required} />;
  return <textarea id={name} name={name} className="mono" required={field.required} placeholder="JSON" />;
}

function readInput(field: InputField, text: string): unknown {
  if (field.type === "string" || field.options) return text;
  if (field.type === "boolean") return text === "on";
  try {
    return parseExact(text);
  } catch {
    throw new Error(`${field.name}: ${text.slice(0, 40)} is not ${field.type === "json" ? "JSON" : `a JSON ${field.type}`}.`);
  }
}
