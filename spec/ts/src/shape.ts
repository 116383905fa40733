import { wellFormed } from "./bytes.js";
import { shapes } from "./gen.js";

/** A value whose type is not what the contract says. */
export class ShapeError extends Error {
  override name = "ShapeError";
}

/** A JSON object. */
export type JsonObject = { [name: string]: unknown };

export function isObject(v: unknown): v is JsonObject {
  return typeof v === "object" && v !== null && !Array.isArray(v);
}

/** Sets a member by any name; plain assignment of `__proto__` would not. */
export function setMember(o: JsonObject, name: string, value: unknown): void {
  if (name === "__proto__") Object.defineProperty(o, name, { value, writable: true, enumerable: true, configurable: true });
  else o[name] = value;
}

/** The time before all others; it stands for none. */
const zeroTime = "0001-01-01T00:00:00.000Z";

interface Reader {
  /** The value in its one form; null reads as nothing. */
  read(v: unknown, path: string): unknown;
  zero(): unknown;
  /** Whether an optional field with this value is left out. */
  empty(v: unknown): boolean;
}

const readers = new Map<string, Reader>();

/**
 * Reads a value of the named shape: a copy that has the members of the shape and no others, in the form in which a view holds them. It throws a
 * {@link ShapeError} on a member of another type.
 */
export function read<T>(shape: string, value: unknown): T {
  return reader(shape).read(value, shape) as T;
}

function reader(word: string): Reader {
  let r = readers.get(word);
  if (!r) {
    r = make(word);
    readers.set(word, r);
  }
  return r;
}

function make(word: string): Reader {
  if (word.startsWith("*")) return nullable(reader(word.slice(1)));
  if (word.startsWith("[]")) return list(reader(word.slice(2)));
  if (word.startsWith("{}")) return map(reader(word.slice(2)));
  switch (word) {
    case "string":
      return { read: (v, path) => (v === null ? "" : wellFormed(must<string>(v, "string", path))), zero: () => "", empty: (v) => v === "" };
    case "bool":
      return { read: (v, path) => (v === null ? false : must<boolean>(v, "boolean", path)), zero: () => false, empty: (v) => v === false };
    case "int":
    case "uint":
      return { read: (v, path) => (v === null ? 0 : integer(v, word, path)), zero: () => 0, empty: (v) => v === 0 };
    case "time":
      return { read: (v, path) => (v === null ? zeroTime : readTime(v, path)), zero: () => zeroTime, empty: (v) => v === zeroTime };
    case "raw":
      return { read: (v) => v, zero: () => undefined, empty: (v) => v === undefined };
  }
  const fields = shapes[word];
  if (!fields) throw new TypeError(`no shape is called ${word}`);
  return struct(word, fields);
}

function must<T>(v: unknown, type: string, path: string): T {
  if (typeof v !== type) throw new ShapeError(`${path}: want a ${type}, got ${show(v)}`);
  return v as T;
}

function show(v: unknown): string {
  const s = JSON.stringify(v) ?? String(v);
  return s.length > 40 ? `${s.slice(0, 40)}…` : s;
}

function integer(v: unknown, word: string, path: string): number {
  if (typeof v !== "number" || !Number.isInteger(v) || Math.abs(v) >= 2 ** 63 || (word === "uint" && v < 0)) {
    throw new ShapeError(`${path}: want an integer${word === "uint" ? " from 0" : ""}, got ${show(v)}`);
  }
  return v;
}

function nullable(of: Reader): Reader {
  return {
    read: (v, path) => (v === null ? undefined : of.read(v, path)),
    zero: () => undefined,
    empty: (v) => v === undefined,
  };
}

function list(of: Reader): Reader {
  return {
    read(v, path) {
      if (v === null) return [];
      if (!Array.isArray(v)) throw new ShapeError(`${path}: want a list, got ${show(v)}`);
      return v.map((e, i) => of.read(e, `${path}[${i}]`));
    },
    zero: () => [],
    empty: (v) => (v as unknown[]).length === 0,
  };
}

function map(of: Reader): Reader {
  return {
    read(v, path) {
      const out: JsonObject = {};
      if (v === null) return out;
      if (!isObject(v)) throw new ShapeError(`${path}: want an object, got ${show(v)}`);
      for (const name of Object.keys(v)) setMember(out, wellFormed(name), of.read(v[name], `${path}.${name}`));
      return out;
    },
    zero: () => ({}),
    empty: (v) => Object.keys(v as JsonObject).length === 0,
  };
}

function struct(word: string, fields: Readonly<Record<string, string>>): Reader {
  let parts: { name: string; optional: boolean; of: Reader }[] | undefined;
  const self: Reader = {
    read(v, path) {
      if (v !== null && !isObject(v)) throw new ShapeError(`${path}: want an object, got ${show(v)}`);
      const out: JsonObject = {};
      parts ??= Object.entries(fields).map(([name, w]) => ({ name, optional: w.endsWith("?"), of: reader(w.replace("?", "")) }));
      for (const { name, optional, of } of parts) {
        const given = v?.[name];
        const value = given === undefined ? of.zero() : of.read(given, `${path}.${name}`);
        if (value !== undefined && !(optional && of.empty(value))) out[name] = value;
      }
      if (word === "ContentBlock" && out["type"] === "text") out["text"] ??= "";
      return out;
    },
    zero: () => self.read(null, word),
    empty: () => false,
  };
  return self;
}

const timeForm = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))$/;

/** Reads an RFC 3339 time into UTC, cut to milliseconds. */
export function readTime(v: unknown, path: string): string {
  const m = typeof v === "string" ? timeForm.exec(v) : null;
  if (!m) throw new ShapeError(`${path}: want an RFC 3339 time, got ${show(v)}`);
  const [year, month, day, hour, minute, second] = m.slice(1, 7).map(Number) as [number, number, number, number, number, number];
  const at = new Date(0);
  at.setUTCFullYear(year, month - 1, day);
  const whole = at.getUTCMonth() === month - 1 && at.getUTCDate() === day && month > 0;
  const [zoneHour, zoneMinute] = [Number(m[9] ?? 0), Number(m[10] ?? 0)];
  if (!whole || hour > 23 || minute > 59 || second > 59 || zoneHour > 23 || zoneMinute > 59) {
    throw new ShapeError(`${path}: want a time that exists, got ${show(v)}`);
  }
  const zone = (zoneHour * 60 + zoneMinute) * (m[8] === "-" ? -1 : 1);
  at.setUTCHours(hour, minute - zone, second, Number((m[7] ?? "").slice(0, 3).padEnd(3, "0")));
  if (at.getUTCFullYear() < 0 || at.getUTCFullYear() > 9999) throw new ShapeError(`${path}: want a year from 0 to 9999 in UTC, got ${show(v)}`);
  return at.toISOString();
}
