// Signing in: with a key, or with a ticket in the fragment of the address, which is used once.
import { KeyRound } from "lucide-react";
import { useState, type FormEvent, type ReactNode } from "react";

import { endSession, startSession, type StartSession, type WhoAmI } from "../../sdk/typescript/src/index.js";
import { RequestFailed, call } from "./api.js";
import { Failed, usePageTitle } from "./components.js";

/** Return the ticket of the address, and remove it from the address and the history. */
export function takeTicket(): string | undefined {
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (!ticket) return undefined;
  history.replaceState(history.state, "", location.pathname + location.search);
  return ticket;
}

export async function signIn(body: StartSession): Promise<WhoAmI> {
  return (await startSession(call({ body }))).data;
}

export async function signOut(): Promise<void> {
  await endSession(call({}));
}

export function SignIn(props: { error?: unknown; onSignIn: (me: WhoAmI) => void }): ReactNode {
  const [error, setError] = useState<unknown>(props.error);
  const [busy, setBusy] = useState(false);
  usePageTitle("Sign in");

  async function submit(event: FormEvent<HTMLFormElement>): Promise<void> {
    event.preventDefault();
    const form = event.currentTarget;
    const fields = [...new FormData(form)].filter(([, value]) => value !== "");
    setBusy(true);
    try {
      props.onSignIn(await signIn(Object.fromEntries(fields) as StartSession));
      form.reset();
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  }

  const known = error instanceof RequestFailed && error.status !== undefined && error.status < 500;
  return (
    <main className="sign-in">
      <form onSubmit={(event) => void submit(event)}>
        <h1>
          <KeyRound aria-hidden size={20} /> Sign in to Plangate
        </h1>
        <p className="meta">
          With an API key of a tenant, or with the link that <code>plangate console</code> opens. The key stays on this
          page; the browser keeps a session cookie that scripts cannot read.
        </p>
        {known && (
          <p className="note bad" role="alert">
            {(error as RequestFailed).message}
          </p>
        )}
        {error !== undefined && !known && (
          <Failed what="The service could not be reached" error={error} nothing="You are not signed in." />
        )}
        <label>
          API key
          <input name="key" type="password" autoComplete="off" required />
        </label>
        <details>
          <summary>Another tenant or principal</summary>
          <label>
            Tenant <span className="meta">needed with the operator&apos;s key</span>
            <input name="tenant" autoComplete="off" placeholder="the key's" />
          </label>
          <label>
            Principal <span className="meta">needs the scope act-as</span>
            <input name="principal" autoComplete="off" placeholder="the key's" />
          </label>
        </details>
        <button className="button primary big" disabled={busy}>
          Sign in
        </button>
      </form>
    </main>
  );
}
