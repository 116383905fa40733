/** What compiles and what must not: `tsc` is the test; at run time only the declarations are looked at. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isEvent, isFrame, knownEvent, knownFrame } from "@muxhost/client";
import type { EventEnvelope, Frame, Methods, MuxClient, Session, Subscribed, WebSocketMaker } from "@muxhost/client";
import type { SessionView, View } from "@muxhost/client/fold";
import type { NodeWebSocket } from "@muxhost/client/node";
import { methods } from "@muxhost/client/protocol";
import type { ErrorKind, Events, Frames } from "@muxhost/client/protocol";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
type IsAny<T> = 0 extends 1 & T ? true : false;

/** The names of a map in which something is `any`. */
type AnyIn<M> = { [K in keyof M]: IsAny<M[K]> extends true ? K : never }[keyof M];

const yes = <T extends true>(..._: T[]): void => {};

export async function compiles(client: MuxClient, frame: Frame, event: EventEnvelope): Promise<void> {
  const { session } = await client.call("session.create", { cwd: "/src", policy: { mode: "ask", rules: [{ tool: "sh", decision: "deny" }] } });
  yes<Same<typeof session, Session>>();
  const prompt = await client.call("session.prompt", { sessionId: session.sessionId, content: [{ type: "text", text: "hi" }], mode: "steer" });
  yes<Same<typeof prompt.accepted, boolean>>();
  const described = await client.call("host.describe");
  yes<Same<typeof described.you.label, string>>();
  await client.call("host.describe", {}, { signal: AbortSignal.timeout(1) });
  const page = await client.call("sessions.list", { roots: true, state: "requires-action" });
  yes<Same<typeof page.next, string | undefined>>();
  const document = await client.call("rpc.discover");
  yes<Same<typeof document, Record<string, unknown>>>();
  const subscribed = await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }], delivery: { reasoning: "off" } });
  yes<Same<typeof subscribed, Subscribed[]>>();
  const vendor = await client.request("vendor.method", { any: "thing" });
  yes<Same<typeof vendor, unknown>>();

  if (isFrame(frame, "approval/requested")) yes<Same<typeof frame.params.inputHash, string>>();
  const known = knownFrame(frame);
  switch (known?.method) {
    case "session/event":
      yes<Same<typeof known.params.event, EventEnvelope>>();
      break;
    case "session/live":
      yes<Same<NonNullable<typeof known.params.turn>["turnId"], string>>();
  }
  if (isEvent(event, "tool/call")) yes<Same<typeof event.data.name, string>>();
  const k = knownEvent(event);
  if (k?.type === "assistant/delta") yes<Same<typeof k.data.text, string>>();

  // @ts-expect-error no such method
  await client.call("session.promt", { sessionId: "s", content: [] });
  // @ts-expect-error content is missing
  await client.call("session.prompt", { sessionId: "s" });
  // @ts-expect-error params are missing
  await client.call("session.prompt");
  // @ts-expect-error a key that the host would refuse
  await client.call("session.get", { sessionId: "s", veiw: true });
  // @ts-expect-error no such outcome
  await client.call("approval.respond", { sessionId: "s", id: "a", outcome: "allowed" });
  // @ts-expect-error only a host gives this outcome
  await client.call("approval.respond", { sessionId: "s", id: "a", outcome: "cancelled" });
  // @ts-expect-error no such mode of delivery
  await client.subscribe({ host: true, delivery: { text: "off" } });
  // @ts-expect-error a result has no such member
  (await client.call("host.describe")).nmae;
  // @ts-expect-error no such frame
  isFrame(frame, "approval/asked");
  // @ts-expect-error unknown until its type is looked at
  event.data.name;
}

export function alsoCompiles(view: SessionView, node: typeof NodeWebSocket, browser: typeof WebSocket): void {
  const shown: View = view;
  const makers: WebSocketMaker[] = [node, browser];
  void [shown, makers];
  yes<Same<AnyIn<Events>, never>>();
  yes<Same<AnyIn<Frames>, never>>();
  yes<Same<{ [M in keyof Methods]: AnyIn<Methods[M]> }[keyof Methods], never>>();
  yes<Same<IsAny<ErrorKind>, false>>();
}

// No public declaration says any, and none but those of /node need Node.
test("the declarations are strict", () => {
  const dist = join(import.meta.dirname, "..", "..", "dist");
  for (const file of readdirSync(dist, { recursive: true, encoding: "utf8" }).filter((f) => f.endsWith(".d.ts"))) {
    const code = readFileSync(join(dist, file), "utf8").replace(/\/\*[\s\S]*?\*\//g, "").replace(/"(?:[^"\\]|\\.)*"/g, '""');
    assert.doesNotMatch(code, /\bany\b/, file);
    if (!file.startsWith("node")) assert.doesNotMatch(code, /\bNodeJS\b|\bBuffer\b|node:/, file);
  }
});

// The table of methods agrees with the contract on what only reads.
test("reading methods are known", () => {
  assert.equal(methods["session.get"].changes, false);
  assert.equal(methods["session.prompt"].changes, true);
  assert.equal(methods["tokens.create"].scope, "admin");
});
