// Single keys: off in fields, and a person can turn them off (WCAG 2.1.4).
import { useEffect, useRef, useState, type ReactNode } from "react";

const STORED = "plangate-keys";

function areOff(): boolean {
  return localStorage.getItem(STORED) === "off";
}

function isField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

type Handlers = Record<string, (() => void) | undefined>;

interface Layer {
  current: Handlers;
  priority: number;
}

const layers: Layer[] = [];

function press(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key !== "Escape" && (isField(event.target) || areOff())) return;
  if (document.querySelector("dialog[open]")) return;
  // Enter belongs to the control that has the focus.
  if (event.key === "Enter" && event.target instanceof HTMLElement && event.target.closest("button, a, summary")) return;
  const [layer] = layers.filter(({ current }) => current[event.key]).sort((one, other) => other.priority - one.priority);
  if (!layer) return;
  event.preventDefault();
  layer.current[event.key]?.();
}

/**
 * Call a handler for its key while the component is shown. Escape works in fields, too. If several components have a
 * handler for a key, the one with the highest priority is called.
 */
export function useKeys(handlers: Handlers, priority = 0): void {
  const layer = useRef<Layer>({ current: handlers, priority });
  useEffect(() => {
    layer.current.current = handlers;
  });
  useEffect(() => {
    const mine = layer.current;
    if (layers.length === 0) window.addEventListener("keydown", press);
    layers.push(mine);
    return () => {
      layers.splice(layers.indexOf(mine), 1);
      if (layers.length === 0) window.removeEventListener("keydown", press);
    };
  }, []);
}

export function useShortcutHelp(): [boolean, (open: boolean) => void] {
  const [open, setOpen] = useState(false);
  useKeys({ "?": () => setOpen(true) });
  return [open, setOpen];
}

const KEYS: [string, string][] = [
  ["j, k", "Next, previous"],
  ["Enter", "Open, or confirm"],
  ["a", "Approve"],
  ["e", "Revise, or edit the arguments"],
  ["r", "Reject"],
  ["x", "Choose for a decision about several"],
  ["d", "Changes"],
  ["g", "Graph"],
  ["v", "Next value that was not opened"],
  ["c", "Comment"],
  ["/", "Search"],
  ["?", "This list"],
  ["Esc", "Back"],
];

export function KeyHelp({ onClose }: { onClose: () => void }): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const [off, setOff] = useState(areOff);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl className="keys">
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <label className="check">
        <input
          type="checkbox"
          checked={!off}
          onChange={(event) => {
            localStorage.setItem(STORED, event.target.checked ? "on" : "off");
            setOff(!event.target.checked);
          }}
        />{" "}
        Use single keys
      </label>
      <form method="dialog">
        <button className="button">Close</button>
      </form>
    </dialog>
  );
}
