/** A client of a host in memory, in fake time. */
import { mock } from "node:test";
import type { TestContext } from "node:test";
import { MuxClient, isFrame } from "@muxhost/client";
import type { ClientOptions, Frame, State } from "@muxhost/client";
import { MockTransport } from "@muxhost/client/mock";

/** Lets everything run that waits for no clock. */
export async function settled(): Promise<void> {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
}

export interface Scene {
  host: MockTransport;
  client: MuxClient;
  states: string[];
  /** Frames so far. */
  seen: Frame[];
  /** Moves the clock. */
  pass: (ms: number) => Promise<void>;
  /** Stops and starts taking frames. */
  take: (on: boolean) => void;
}

/** A client of a host in memory, in fake time, whose frames are taken. */
export async function scene(t: TestContext, options: Partial<ClientOptions> = {}): Promise<Scene> {
  mock.timers.enable({ apis: ["setTimeout"] });
  t.after(() => mock.timers.reset());
  t.mock.method(Math, "random", () => 1);
  const host = new MockTransport();
  const states: string[] = [];
  const onState = (s: State, cause?: Error): void => void states.push(cause ? `${s}: ${cause.message}` : s);
  const client = new MuxClient({ url: "http://host:1", token: "secret", WebSocket: host.WebSocket, onState, ...options });
  t.after(() => client.close());
  const seen: Frame[] = [];
  let gate: Promise<void> = Promise.resolve();
  let release = (): void => {};
  const take = (on: boolean): void => {
    release();
    if (!on) gate = new Promise((resolve) => (release = resolve));
  };
  void (async () => {
    for await (const f of client.frames()) {
      seen.push(f);
      await gate;
    }
  })().catch((err) => states.push(`frames: ${err.name}`));
  await settled();
  const pass = async (ms: number): Promise<void> => {
    await settled();
    mock.timers.tick(ms);
    await settled();
  };
  return { host, client, states, seen, pass, take };
}

export const message = (text: string): { type: string; data: object } => ({ type: "user/message", data: { content: [{ type: "text", text }] } });

export const seqs = (frames: Frame[]): number[] => frames.flatMap((f) => (isFrame(f, "session/event") ? [f.params.event.seq ?? 0] : []));
