// The parts of the system: runtimes, sources, a form to try an agent, and operations.
export { RuntimesPage } from "./runtimes.js";
export { SourcesPage } from "./sources.js";
export { TryPage } from "./try.js";
export { OperationsPage } from "./operations.js";
