// Check all types and write the bundle that the service serves: `node build.mjs FOLDER`.
//
// The bundle is committed. `python -m tests.support.console` builds it again and compares, so the output depends on
// nothing but the sources and the lock files: no dates, no absolute paths, no source maps.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);
const out = process.argv[2];
if (!out) throw new Error("usage: node build.mjs FOLDER [--no-types]");

function packageFolder(name) {
  const bases = [...require.resolve.paths(name), join(here, "../sdk/typescript/node_modules")];
  for (const base of bases) if (existsSync(join(base, name))) return join(base, name);
  throw new Error(`${name} is not installed: run npm ci`);
}

if (!process.argv.includes("--no-types")) {
  try {
    execFileSync(process.execPath, [join(packageFolder("typescript"), "bin/tsc"), "-p", "."], { cwd: here, stdio: "inherit" });
    execFileSync(process.execPath, [join(packageFolder("eslint"), "bin/eslint.js"), "--max-warnings=0", "."], {
      cwd: here,
      stdio: "inherit",
    });
  } catch {
    process.exit(1);
  }
}

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const { metafile } = await build({
  entryPoints: [join(here, "src/app.tsx"), join(here, "src/stream-worker.ts"), join(here, "src/theme.ts")],
  outdir: out,
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  platform: "browser",
  jsx: "automatic",
  minify: true,
  legalComments: "none",
  charset: "utf8",
  entryNames: "[name]",
  chunkNames: "chunk-[hash]",
  preserveSymlinks: true,
  metafile: true,
  absWorkingDir: here,
  define: { "process.env.NODE_ENV": '"production"' },
});

// Every package that the bundle contains comes with its license.
const used = new Set();
for (const input of Object.keys(metafile.inputs)) {
  const name = input.match(/.*node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1];
  if (name) used.add(name);
}
const licenses = [...used].sort().map((name) => {
  const folder = packageFolder(name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  const text = file ? readFileSync(join(folder, file), "utf8").trim() : `License: ${license}`;
  return `${name} ${version}\n\n${text}\n`;
});
writeFileSync(join(out, "THIRD-PARTY-LICENSES.txt"), licenses.join(`\n${"-".repeat(80)}\n\n`));
if (process.argv.includes("--sizes")) {
  for (const [name, { bytes, entryPoint }] of Object.entries(metafile.outputs)) {
    console.log(`${String(bytes).padStart(8)} ${relative(out, join(here, name))} ${entryPoint ?? ""}`);
  }
}
