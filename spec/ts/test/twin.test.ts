import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { applyFrame, durableView, newView } from "@muxhost/client/fold";
import type { Frame, View } from "@muxhost/client/fold";
import { comparable } from "./vectors.js";

interface Step {
  seed: number;
  frame: Frame;
  issue: "" | "gap" | "malformed";
  view: View;
  durable?: View;
}

/** What testdata/fold writes. */
async function* steps(seeds: number, frames: number): AsyncGenerator<Step> {
  const bin = join(import.meta.dirname, "..", "bin", "foldgen");
  const child = spawn(bin, ["1", String(seeds), String(frames)], { stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface(child.stdout)) yield JSON.parse(line) as Step;
}

// Random frames, sound and broken, in any order, fold to the same view in Go and here, step by step.
test("the fold is the host's own", { timeout: 120_000 }, async () => {
  let v = newView();
  let seed = 0;
  let n = 0;
  for await (const s of steps(20, 100)) {
    if (s.seed !== seed) v = newView();
    seed = s.seed;
    const issue = applyFrame(v, s.frame);
    const where = `seed ${seed}, after ${JSON.stringify(s.frame).slice(0, 1000)}: ${issue}`;
    assert.equal(issue?.kind ?? "", s.issue, where);
    assert.deepEqual(comparable(JSON.parse(JSON.stringify(v))), comparable(s.view), where);
    if (s.durable) assert.deepEqual(comparable(JSON.parse(JSON.stringify(durableView(v)))), comparable(s.durable), where);
    n++;
  }
  assert.equal(n, 2000);
});
