// Generate the types and calls from the API document, check all types, and write dist/: one module without
// dependencies, its declarations, and the licenses of what is bundled. Then check and compile the tests.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);
const bundled = ["@noble/hashes", "eventsource-parser", "lossless-json"];

function run(script, ...args) {
  execFileSync(process.execPath, [script, ...args], { cwd: here, stdio: ["ignore", "ignore", "inherit"] });
}

function packageFolder(name) {
  for (const base of require.resolve.paths(name)) if (existsSync(join(base, name))) return join(base, name);
  throw new Error(`${name} is not installed: run npm ci`);
}

rmSync(join(here, "dist"), { recursive: true, force: true });
run(join(packageFolder("@hey-api/openapi-ts"), "bin/run.js"), "-f", "openapi-ts.config.ts", "--silent");

/** Run the TypeScript compiler, which prints what is wrong. */
function compile(project) {
  try {
    const script = join(packageFolder("typescript"), "bin/tsc");
    execFileSync(process.execPath, [script, "-p", project], { cwd: here, stdio: "inherit" });
  } catch {
    process.exit(1);
  }
}

compile("tsconfig.json");
const { metafile } = await build({
  entryPoints: [join(here, "src/index.ts")],
  outfile: join(here, "dist/index.js"),
  bundle: true,
  format: "esm",
  target: "es2022",
  platform: "neutral",
  mainFields: ["module", "main"],
  legalComments: "none",
  metafile: true,
  absWorkingDir: here,
});

// Every package that the bundle contains comes with its license.
const used = new Set();
for (const input of Object.keys(metafile.inputs)) {
  const name = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1];
  if (name) used.add(name);
}
for (const name of bundled) if (!used.has(name)) throw new Error(`${name} is not in the bundle`);
const licenses = [...used].sort().map((name) => {
  const folder = packageFolder(name);
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} has no license file`);
  return `${name}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
});
mkdirSync(join(here, "dist"), { recursive: true });
writeFileSync(join(here, "dist/THIRD-PARTY-LICENSES.txt"), licenses.join(`\n${"-".repeat(80)}\n\n`));

// The tests and the example are checked against the declarations that users get. The tests are compiled for the oldest
// Node, the example is bundled for browsers.
compile("tsconfig.tests.json");
await build({
  entryPoints: [join(here, "example/chat.ts")],
  outfile: join(here, "example/chat.js"),
  bundle: true,
  format: "esm",
  target: "es2022",
});
await build({
  entryPoints: readdirSync(join(here, "tests")).filter((name) => name.endsWith(".ts")).map((name) => join(here, "tests", name)),
  outdir: join(here, "tests/compiled"),
  outExtension: { ".js": ".mjs" },
  format: "esm",
  target: "node20",
});
