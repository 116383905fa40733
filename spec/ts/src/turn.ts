import { Stream } from "./bytes.js";
import type { LiveBlock, LiveTool, LiveTurn } from "./gen.js";

/** An open text or reasoning block. */
export interface OpenBlock {
  kind: LiveBlock["kind"];
  stream: Stream;
}

/** What a running turn holds that is not in the log yet: the text of open blocks and the progress of running tools. */
export class OpenTurn {
  readonly id: string;
  readonly blocks = new Map<number, OpenBlock>();
  /** Blocks that have a message or were retracted. */
  closed: Set<number>;
  /** In the order of their calls. */
  readonly tools = new Map<string, Stream>();

  constructor(id: string, closed: Set<number>) {
    this.id = id;
    this.closed = closed;
  }

  /** Takes chunks of a block; false when chunks before them are missing. */
  delta(kind: LiveBlock["kind"], d: { block: number; from: number; to: number; text: string }): boolean {
    if (this.closed.has(d.block)) return true;
    const block = this.blocks.get(d.block) ?? { kind, stream: new Stream() };
    const verdict = block.stream.add(d.from, d.to, d.text);
    if (verdict === "added") this.blocks.set(d.block, block);
    return verdict !== "missed";
  }

  /** Takes chunks of a running tool's progress; what comes for another is late. */
  progress(d: { callId: string; from: number; to: number; text: string }): boolean {
    const tool = this.tools.get(d.callId);
    if (!tool) return true;
    const verdict = tool.add(d.from, d.to, d.text);
    tool.keepTail();
    return verdict !== "missed";
  }

  /** Starts a tool; a second call with the id of a running one replaces it. */
  openTool(callId: string): Stream {
    const stream = new Stream();
    this.tools.delete(callId);
    this.tools.set(callId, stream);
    return stream;
  }

  /** Makes a running tool the last one. */
  toEnd(callId: string): void {
    const stream = this.tools.get(callId);
    if (stream && this.tools.delete(callId)) this.tools.set(callId, stream);
  }

  close(blocks: readonly number[]): void {
    for (const n of blocks) {
      this.blocks.delete(n);
      this.closed.add(n);
    }
  }

  /** The turn as `session/live` would carry it. */
  toJSON(): LiveTurn {
    const blocks = [...this.blocks].sort(([a], [b]) => a - b);
    const turn: LiveTurn = { turnId: this.id };
    if (blocks.length > 0) {
      turn.blocks = blocks.map(([block, b]): LiveBlock => ({ block, kind: b.kind, text: b.stream.text, to: b.stream.to }));
    }
    if (this.tools.size > 0) {
      turn.tools = [...this.tools].map(([callId, s]): LiveTool => ({ callId, text: s.tail(), to: s.to }));
    }
    return turn;
  }
}
