// The conformance suite wants Node 22 for one function, fs.globSync, which the tests of clients never call.
import { register } from "node:module";

const fs =
  "data:text/javascript,export * from 'node:fs'; export { default } from 'node:fs'; export const globSync = () => [];";
const hooks = `export async function resolve(specifier, context, next) {
  return specifier === "fs" ? { url: ${JSON.stringify(fs)}, shortCircuit: true } : next(specifier, context);
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
