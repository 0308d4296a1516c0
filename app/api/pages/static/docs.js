// The page of the API document: a session for this browser, and Swagger UI, which uses it.
"use strict";

const base = new URL(".", location.href);
const form = document.getElementById("sign-in");
const status = document.getElementById("session");
const signOut = document.getElementById("sign-out");

async function call(method, path, body) {
  const response = await fetch(new URL(path, base), {
    method,
    headers: { "Plangate-Request": "1", ...(body && { "Content-Type": "application/json" }) },
    body: body && JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.detail);
  return answer;
}

function show(me, message = "") {
  form.hidden = Boolean(me);
  signOut.hidden = !me;
  status.textContent = me ? `Signed in as ${me.principal} (tenant ${me.tenant})` : message;
}

/** Return the ticket of the address, and remove it from the address and the history. */
function takeTicket() {
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (ticket) history.replaceState(null, "", location.pathname + location.search);
  return ticket;
}

async function start(ticket) {
  try {
    show(ticket ? await call("POST", "session", { ticket }) : await call("GET", "whoami"));
  } catch (error) {
    show(null, ticket ? error.message : "");
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = [...new FormData(form)].filter(([, value]) => value);
  try {
    const me = await call("POST", "session", Object.fromEntries(fields));
    form.reset();
    show(me);
  } catch (error) {
    show(null, error.message);
  }
});

signOut.addEventListener("click", async () => {
  try {
    await call("DELETE", "session");
    show(null);
  } catch (error) {
    show(null, error.message);
  }
});

async function showDocument() {
  const spec = await (await fetch(new URL("openapi.json", base))).json();
  spec.servers = [{ url: base.href.replace(/\/$/, "") }];
  SwaggerUIBundle({
    spec,
    dom_id: "#swagger-ui",
    deepLinking: false,
    docExpansion: "none",
    validatorUrl: null,
    requestInterceptor: (request) => {
      request.headers["Plangate-Request"] = "1";
      return request;
    },
  });
}

const ticket = takeTicket();
start(ticket);
showDocument();
