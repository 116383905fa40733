import assert from "node:assert/strict";
import { after, test } from "node:test";
import { NodeWebSocket } from "@muxhost/client/node";
import { isDeepStrictEqual } from "node:util";
import { VectorHosts } from "./process.js";
import { comparable, vectors } from "./vectors.js";

interface Step {
  conn?: string;
  token?: string;
  reopen?: boolean;
  send?: string;
  expect?: unknown;
  frames?: unknown[];
  also?: unknown[];
  not?: unknown[];
}

type Json = { [name: string]: unknown };

/** Values that patterns bound by name. */
type Binds = Map<string, string | number>;

const waitMs = 10_000;

const hosts = new VectorHosts();
after(() => hosts.stop());

/** One raw connection: no client of the package is between. */
class Peer {
  readonly ws: NodeWebSocket;
  private readonly responses: Json[] = [];
  private readonly frames: Json[] = [];
  private wake = (): void => {};

  constructor(url: string, token: string) {
    this.ws = new NodeWebSocket(`${url.replace("http", "ws")}/v1/ws`, ["muxhost.v1"], { headers: { Authorization: `Bearer ${token}` } });
    this.ws.addEventListener("message", (e) => {
      const m = JSON.parse(e.data as string) as Json;
      ("method" in m ? this.frames : this.responses).push(m);
      this.wake();
    });
    this.ws.addEventListener("close", () => this.wake());
  }

  opened(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.ws.addEventListener("open", () => resolve());
      this.ws.addEventListener("close", () => reject(new Error(`not opened: ${this.ws.status}`)));
    });
  }

  response(): Promise<Json> {
    return this.shift(this.responses);
  }

  frame(): Promise<Json> {
    return this.shift(this.frames);
  }

  private async shift(from: Json[]): Promise<Json> {
    let late = false;
    const timer = setTimeout(() => ((late = true), this.wake()), waitMs);
    try {
      while (from.length === 0) {
        assert.ok(!late, `nothing came for ${waitMs} ms`);
        assert.notEqual(this.ws.readyState, 3, "the connection is closed");
        await new Promise<void>((resolve) => (this.wake = resolve));
      }
      return from.shift() as Json;
    } finally {
      clearTimeout(timer);
    }
  }
}

function fill(binds: Binds, text: string): string {
  for (const [name, value] of binds) text = text.replaceAll(`\${${name}}`, () => String(value));
  return text;
}

/** Whether the value matches the pattern; what it binds is bound only where all of it matches. */
function matches(binds: Binds, pattern: unknown, value: unknown): boolean {
  const trial = new Map(binds);
  if (!fits(trial, pattern, value)) return false;
  for (const [name, v] of trial) binds.set(name, v);
  return true;
}

function fits(binds: Binds, p: unknown, v: unknown): boolean {
  if (typeof p === "string") return fitsText(binds, p, v);
  if (Array.isArray(p)) return Array.isArray(v) && v.length === p.length && p.every((e, i) => fits(binds, e, v[i]));
  if (typeof p !== "object" || p === null) return isDeepStrictEqual(p, v);
  const o = p as Json;
  if (typeof o["$bind"] === "string") {
    if (typeof v !== "string" && typeof v !== "number") return false;
    binds.set(o["$bind"], v);
    return true;
  }
  if (Array.isArray(o["$has"])) return Array.isArray(v) && o["$has"].every((e) => v.some((x) => matches(binds, e, x)));
  if (typeof v !== "object" || v === null || Array.isArray(v)) return false;
  return Object.entries(o).every(([name, e]) => {
    const there = Object.hasOwn(v, name);
    return e === "$absent" ? !there : there && fits(binds, e, (v as Json)[name]);
  });
}

function fitsText(binds: Binds, p: string, v: unknown): boolean {
  switch (p) {
    case "$any":
      return true;
    case "$string":
      return typeof v === "string";
    case "$int":
      return Number.isSafeInteger(v) && (v as number) >= 0;
    case "$uuid":
      return typeof v === "string" && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(v);
  }
  if (p.startsWith("${") && p.endsWith("}")) return binds.has(p.slice(2, -1)) && binds.get(p.slice(2, -1)) === v;
  return v === p;
}

/** Waits for the frames of a step: two lists side by side, each in its order. */
async function frames(peer: Peer, s: Step, binds: Binds): Promise<void> {
  const lists = [[...(s.frames ?? [])], [...(s.also ?? [])]];
  const passed: string[] = [];
  while (lists.some((l) => l.length > 0)) {
    const f = await peer.frame().catch((err: Error) => assert.fail(`waiting for ${JSON.stringify(lists)}: ${err.message}, after\n${passed.join("\n")}`));
    for (const not of s.not ?? []) assert.ok(!matches(binds, not, comparable(f)), `${JSON.stringify(f)} must not come`);
    lists.find((l) => l.length > 0 && matches(binds, l[0], comparable(f)))?.shift();
    passed.push(JSON.stringify(f).slice(0, 300));
  }
}

const all = vectors<{ steps: Step[] }>("rpc");

test("there are vectors to play", () => {
  assert.ok(all.length >= 40, `${all.length} vectors in spec/vectors/rpc, want at least 40`);
});

for (const { name, vector } of all) {
  // The host answers as the file says, over a WebSocket of this package.
  test(`rpc vector ${name}`, async (t) => {
    const { url, token, cwd } = await hosts.fresh();
    const binds: Binds = new Map([["cwd", cwd]]);
    const peers = new Map<string, Peer>();
    t.after(() => peers.forEach((p) => p.ws.terminate()));
    for (const [i, s] of vector.steps.entries()) {
      const conn = s.conn ?? "a";
      let peer = peers.get(conn);
      if (!peer || s.reopen) {
        peer?.ws.terminate();
        peer = new Peer(url, s.token ? fill(binds, s.token) : token);
        peers.set(conn, peer);
        await peer.opened();
      }
      if (s.send !== undefined) peer.ws.send(fill(binds, s.send));
      if (s.expect !== undefined) {
        const r = await peer.response();
        assert.ok(matches(binds, s.expect, comparable(r)), `step ${i}: want ${JSON.stringify(s.expect)}, got ${JSON.stringify(r).slice(0, 2000)}`);
      }
      await frames(peer, s, binds);
    }
  });
}
