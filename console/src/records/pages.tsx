// What the service keeps: plans, references, artifacts and threads.
export { PlanPage, PlansPage } from "./plans.js";
export { ArtifactsPage } from "./artifacts.js";
export { ReferencesPage } from "./references.js";
export { ThreadsPage } from "./threads.js";
