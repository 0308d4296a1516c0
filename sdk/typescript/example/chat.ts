// A chat page with approvals. Open index.html?runtime=NAME&url=SERVICE#KEY: a fragment reaches no server's log.
import { connect, stringifyExact, type PlangateEvent } from "plangate";

const page = new URLSearchParams(location.search);
const plangate = connect({ url: page.get("url") ?? location.origin, key: location.hash.slice(1) });
const threadKey = crypto.getRandomValues(new Uint32Array(2)).join("-"); // the messages of this page are one conversation

/** Add an element to the log. Text of models and tools is only ever set as text. */
function show(tag: string, text: string): HTMLElement {
  const element = document.createElement(tag);
  element.textContent = text;
  document.querySelector("#log")?.append(element);
  element.scrollIntoView();
  return element;
}

/** Show what an approval is about and let the person decide. The approved digest is that of the bytes shown here. */
async function review(id: string): Promise<void> {
  const subject = await plangate.readSubject(id);
  const box = show("section", "");
  const add = (tag: string, text: string) => box.appendChild(Object.assign(document.createElement(tag), { textContent: text }));
  add("h2", "Waits for your approval");
  add("pre", stringifyExact(subject.value, 2));
  const buttons = [add("button", "Approve"), add("button", "Reject")];
  const decide = async (decision: () => Promise<{ status: string }>) => {
    for (const button of buttons) button.toggleAttribute("disabled", true);
    const status = await decision().then((decided) => decided.status, (error: unknown) => String(error));
    add("p", `This approval is ${status}.`);
  };
  buttons[0]?.addEventListener("click", () => void decide(() => plangate.approve(id, subject.bytes)));
  buttons[1]?.addEventListener("click", () => void decide(() => plangate.reject(id, "Rejected in the chat.")));
}

function react(event: PlangateEvent, answer: HTMLElement): void {
  switch (event.type) {
    case "text":
      answer.append(event.text);
      break;
    case "step-retry":
      answer.textContent = ""; // the model repeats this turn
      break;
    case "approval-required":
      void review(event.data.id);
      break;
    case "error":
      show("p", `${event.error.code}: ${event.error.message}`);
      break;
  }
}

document.querySelector("form")?.addEventListener("submit", async (submitted) => {
  submitted.preventDefault();
  const form = submitted.currentTarget as HTMLFormElement;
  const prompt = String(new FormData(form).get("prompt"));
  form.reset();
  show("h2", prompt);
  const answer = show("p", "");
  const runtime = page.get("runtime") ?? "";
  for await (const event of plangate.startQuery({ runtime, prompt, threadKey })) react(event, answer);
});
