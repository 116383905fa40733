import type { AssistantMessage, Item, ReasoningMessage, Withheld } from "./gen.js";
import { joinTurn } from "./fold_turn.js";
import { defined, indexBlocks } from "./view.js";
import type { SessionView } from "./view.js";
import type { Envelope } from "./wire.js";

/** Takes a message, which replaces its blocks: where it replaces a whole earlier message it takes that one's place. */
export function message(v: SessionView, e: Envelope, kind: "assistant" | "reasoning", p: AssistantMessage | ReasoningMessage | Withheld): void {
  joinTurn(v, e);
  const { content, blocks, partial, usage } = p as Partial<AssistantMessage>;
  closeBlocks(v, e, blocks ?? []);
  const at = release(v, e, blocks ?? []) ?? v.items.length;
  v.items[at] = defined({
    kind,
    seq: e.seq,
    ts: e.ts,
    turnId: e.turnId || undefined,
    by: e.by,
    content: content?.length ? content : undefined,
    blocks: blocks?.length ? blocks : undefined,
    partial: partial || undefined,
    usage,
    withheld: (kind === "reasoning" && !content?.length && e.data["withheld"] === true) || undefined,
  }) as Item;
  indexBlocks(v, at);
}

/** Makes the blocks void. */
export function retract(v: SessionView, e: Envelope, blocks: readonly number[]): void {
  joinTurn(v, e);
  closeBlocks(v, e, blocks);
  release(v, e, blocks);
}

/** Makes later deltas for the blocks void. */
function closeBlocks(v: SessionView, e: Envelope, blocks: readonly number[]): void {
  if (v.turnId !== "" && e.turnId === v.turnId) for (const n of blocks) v.index.closed.add(n);
  if (e.turnId !== "" && v.index.live?.id === e.turnId) v.index.live.close(blocks);
}

/** Takes the blocks from the messages of the open turn that hold them, and returns the place of the first message that was left empty. */
function release(v: SessionView, e: Envelope, blocks: readonly number[]): number | undefined {
  if (v.turnId === "" || e.turnId !== v.turnId) return undefined;
  let first: number | undefined;
  for (const n of blocks) {
    const at = v.index.blocks.get(n);
    const it = at === undefined ? undefined : v.items[at];
    if (at === undefined || !it) continue;
    const left = without(it, n);
    for (const b of it.blocks ?? []) if (!left?.blocks?.includes(b)) v.index.blocks.delete(b);
    v.index.blocks.delete(n);
    if (left) {
      v.items[at] = left;
      continue;
    }
    v.items[at] = defined({ kind: it.kind, seq: it.seq, ts: it.ts, turnId: it.turnId, void: true });
    first ??= at;
  }
  return first;
}

/** The message without a block and its content; undefined where nothing is left, also where it is unknown which content is the block's. */
function without(it: Item, n: number): Item | undefined {
  const { blocks = [], content = [] } = it;
  if (blocks.length !== content.length) return undefined;
  const kept = blocks.map((b, i) => [b, i] as const).filter(([b]) => b !== n);
  if (kept.length === 0) return undefined;
  return { ...it, blocks: kept.map(([b]) => b), content: kept.flatMap(([, i]) => content[i] ?? []) };
}
