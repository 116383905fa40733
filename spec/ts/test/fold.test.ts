import assert from "node:assert/strict";
import { test } from "node:test";
import { applyFrame, newView, sessionOf } from "@muxhost/client/fold";
import type { Frame, SessionView, View } from "@muxhost/client/fold";
import { comparable, vectors } from "./vectors.js";

interface FoldVector {
  session: string;
  frames: Frame[];
  view: View;
  steps?: { after: number; view: View }[];
  gap?: number;
  refused?: number;
}

const all = vectors<FoldVector>("fold");

const json = (v: SessionView): unknown => JSON.parse(JSON.stringify(v));

test("there are vectors to fold", () => {
  assert.ok(all.length >= 100, `${all.length} vectors in spec/vectors/fold, want at least 100`);
});

for (const { name, vector } of all) {
  // What Go's fold makes of the frames is what this one makes of them.
  test(`vector ${name}`, () => {
    let v = newView();
    vector.frames.forEach((f, i) => {
      const before = JSON.stringify(f);
      const mine = sessionOf(f) === vector.session || (f.params as { sessionId?: string } | undefined)?.sessionId === undefined;
      const issue = mine ? applyFrame(v, f) : undefined;
      assert.equal(issue?.kind, i === vector.gap ? "gap" : i === vector.refused ? "malformed" : undefined, `frame ${i}: ${issue}`);
      assert.equal(JSON.stringify(f), before, `frame ${i} was changed`);
      for (const s of vector.steps ?? []) {
        if (s.after === i + 1) assert.deepEqual(comparable(json(v)), comparable(s.view), `after ${s.after} frames`);
      }
    });
    assert.deepEqual(comparable(json(v)), comparable(vector.view));
  });

  // A view that is stored and read back after each frame ends the same.
  test(`vector ${name}, stored in between`, () => {
    let v = newView();
    for (const f of vector.frames) {
      const mine = sessionOf(f) === vector.session || (f.params as { sessionId?: string } | undefined)?.sessionId === undefined;
      if (mine) applyFrame(v, f);
      const more = f.method === "session/live" && (f.params as { more?: boolean }).more;
      if (!more) v = newView(json(v) as View);
    }
    assert.deepEqual(comparable(json(v)), comparable(vector.view));
  });
}
