import { wellFormed } from "./bytes.js";
import { eventShapes, frameShapes } from "./gen.js";
import type { By, EventEnvelope, EventOf, Events, FrameOf, Frames, KnownEvent, KnownFrame } from "./gen.js";
import { isObject, read, readTime, ShapeError } from "./shape.js";

/** A notification of the host, of a known type or of any other, with its params as they came. */
export interface Frame {
  jsonrpc?: "2.0";
  method: string;
  params?: unknown;
}

/** Whether the frame is of this type; it narrows the params. */
export function isFrame<T extends keyof Frames>(frame: Frame, type: T): frame is FrameOf<T> {
  return frame.method === type;
}

/** The frame with its type known, for a `switch` over `method`; undefined where it is of another type. */
export function knownFrame(frame: Frame): KnownFrame | undefined {
  return Object.hasOwn(frameShapes, frame.method) ? (frame as KnownFrame) : undefined;
}

/** Whether the event is of this type; it narrows the data. */
export function isEvent<T extends keyof Events>(event: EventEnvelope, type: T): event is EventEnvelope & EventOf<T> {
  return event.type === type;
}

/** The event with its type known, for a `switch` over `type`; undefined where it is an agent's own. */
export function knownEvent(event: EventEnvelope): KnownEvent | undefined {
  return Object.hasOwn(eventShapes, event.type) ? (event as KnownEvent) : undefined;
}

/** The session that a frame belongs to, "" for none. */
export function sessionOf(frame: Frame): string {
  return isObject(frame.params) && typeof frame.params["sessionId"] === "string" ? frame.params["sessionId"] : "";
}

/** The envelope of an event: what the fold and the client read of it. */
export interface Envelope {
  type: string;
  /** 0 on a live-only event. */
  seq: number;
  after: number;
  ts: string | undefined;
  turnId: string;
  by: By | undefined;
  data: { [name: string]: unknown };
}

/** Reads the envelope of an event; it throws a {@link ShapeError}. */
export function readEvent(v: unknown): Envelope {
  if (!isObject(v)) throw new ShapeError("event: want an object");
  const data = v["data"];
  if (!isObject(data)) throw new ShapeError("event.data: want an object");
  const type = text(v["type"], "event.type");
  if (type === "") throw new ShapeError("event.type: want a type, got none");
  text(v["traceId"], "event.traceId");
  const ts = given(v["ts"]) ? readTime(v["ts"], "event.ts") : undefined;
  return {
    type,
    seq: number(v["seq"], "event.seq"),
    after: number(v["after"], "event.after"),
    ts: ts === "0001-01-01T00:00:00.000Z" ? undefined : ts,
    turnId: text(v["turnId"], "event.turnId"),
    by: given(v["by"]) ? read<By>("By", v["by"]) : undefined,
    data,
  };
}

const given = (v: unknown): boolean => v !== undefined && v !== null;

function text(v: unknown, path: string): string {
  if (!given(v)) return "";
  if (typeof v !== "string") throw new ShapeError(`${path}: want a string`);
  return wellFormed(v);
}

function number(v: unknown, path: string): number {
  if (!given(v)) return 0;
  if (typeof v !== "number" || !Number.isSafeInteger(v) || v < 0) throw new ShapeError(`${path}: want an integer from 0 to 2^53-1`);
  return v;
}
