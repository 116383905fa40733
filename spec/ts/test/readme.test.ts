import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { startHost } from "./process.js";

const run = promisify(execFile);
const root = join(import.meta.dirname, "..", "..");

/** The first block of JavaScript in README.md, at a place from where the package's own name leads to it. */
function example(file: string): string {
  const code = /```js\n([\s\S]*?)```/.exec(readFileSync(join(root, "README.md"), "utf8"))?.[1] ?? assert.fail("README.md has no block of js");
  const dir = join(root, "build", "readme");
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, file), code);
  return join(dir, file);
}

// The example of the README does what it says, against a real host.
test("the README's example runs", { timeout: 60_000 }, async (t) => {
  const host = await startHost(t);
  const { stdout } = await run(process.execPath, [example("example.mjs")], { env: { ...process.env, MUXHOST_STATE_DIR: host.stateDir } });
  assert.match(stdout, /^allowing .*echo hello/);
  assert.match(stdout, /\nhello\n/);
});

// It also compiles, as strictly as one can.
test("the README's example compiles", { timeout: 60_000 }, async () => {
  const tsc = join(root, "node_modules", ".bin", "tsc");
  const flags = ["--noEmit", "--ignoreConfig", "--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "nodenext", "--types", "node"];
  await run(tsc, [...flags, example("example.mts")], { cwd: root }).catch((err: { stdout: string }) => assert.fail(err.stdout));
});
