/** Reads the vectors of spec/vectors. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** The folder of the published contract. */
export const spec = join(import.meta.dirname, "..", "..", "..");

/** Every vector below spec/vectors/KIND, by name. */
export function vectors<V>(kind: "fold" | "rpc"): { name: string; vector: V }[] {
  const dir = join(spec, "vectors", kind);
  if (!existsSync(dir)) return [];
  const files = readdirSync(dir).filter((f) => f.endsWith(".json")).sort();
  return files.map((f) => ({ name: f.slice(0, -".json".length), vector: expanded(JSON.parse(readFileSync(join(dir, f), "utf8"))) as V }));
}

/** Expands {"$text": [["é", 40000]]} everywhere. */
function expanded(v: unknown): unknown {
  if (Array.isArray(v)) return v.map(expanded);
  if (typeof v !== "object" || v === null) return v;
  const text = (v as { $text?: [string, number][] }).$text;
  if (text) return text.map(([piece, n]) => piece.repeat(n)).join("");
  return copied(v, expanded);
}

/** A JSON value in which half a surrogate pair is U+FFFD, as vectors compare. */
export function comparable(v: unknown): unknown {
  if (typeof v === "string") return v.replace(/[\uD800-\uDBFF][\uDC00-\uDFFF]|[\uD800-\uDFFF]/g, (m) => (m.length === 2 ? m : "\uFFFD"));
  if (Array.isArray(v)) return v.map(comparable);
  if (typeof v !== "object" || v === null) return Object.is(v, -0) ? 0 : v;
  return copied(v, comparable);
}

function copied(v: object, f: (x: unknown) => unknown): object {
  const out = {};
  for (const [k, x] of Object.entries(v)) Object.defineProperty(out, comparable(k) as string, { value: f(x), enumerable: true, configurable: true, writable: true });
  return out;
}
