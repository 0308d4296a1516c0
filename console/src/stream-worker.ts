// The SharedWorker of all tabs: one stream, and a port for each tab.
import { TenantStream, type TabMessage } from "./stream.js";

interface SharedWorkerScope {
  onconnect: ((event: MessageEvent) => void) | null;
}

const ports = new Set<MessagePort>();
const stream = new TenantStream(new URL("../../", import.meta.url).href.replace(/\/$/, ""), (message) => {
  for (const port of ports) port.postMessage(message);
});

(globalThis as unknown as SharedWorkerScope).onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  ports.add(port);
  port.onmessage = ({ data }: MessageEvent<TabMessage | { kind: "close" }>) => {
    if (data.kind === "close") ports.delete(port);
    else stream.handle(data);
  };
  if (stream.current === undefined || stream.current.kind === "signed-out") stream.start();
  else port.postMessage(stream.current);
};
