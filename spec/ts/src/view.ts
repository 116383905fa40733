import type {
  Budget, Child, Command, Decision, ForkPoint, Item, LiveTurn, Origin, Policy, QueuedPrompt, SessionState, Surface, Task, Todo, Turn, Usage, View, ViewPending,
} from "./gen.js";
import { read, ShapeError } from "./shape.js";
import type { OpenTurn } from "./turn.js";

/** Where the history of a request stands: an item, and a place among the decisions of its tool, or -1. */
export interface DecisionPlace {
  item: number;
  at: number;
}

/**
 * The state of one session, as the fold keeps it. It has the members of {@link View}, so that whatever shows a view can show this.
 *
 * {@link applyFrame} and {@link applyEvent} change it in place, at a cost that does not depend on its length. Arrays are changed in place too; what they
 * hold is not: an item, turn or card that changes is replaced by a new object, so that `===` tells what to draw anew. `pending`, `children`, `tasks`,
 * `queue`, `surface`, `closedBlocks` and `live` are worked out when they are read. {@link SessionView.toJSON} copies all of it.
 */
export class SessionView implements View {
  seq = 0;
  status: SessionState = "idle";
  epoch = "";
  title = "";
  agent = "";
  cwd = "";
  origin?: Origin;
  parentSessionId = "";
  rootSessionId = "";
  depth = 0;
  callId = "";
  forkedFrom?: ForkPoint;
  createdAt?: string;
  closed = false;
  labels?: Record<string, string>;
  config?: unknown;
  options?: Record<string, unknown>;
  policy?: Policy;
  budget?: Budget;
  model = "";
  /** The open turn, "" when none is. */
  turnId = "";
  turns: Turn[] = [];
  items: Item[] = [];
  todos: Todo[] = [];
  usage?: Usage;
  commands: Command[] = [];
  gaps = false;
  lagging = false;
  subscribed = false;
  /** A base that is coming in parts. */
  partialBase?: { part: number; parts: number; text: string };

  /** What the fold finds things by; no concern of who shows the view. */
  readonly index = new ViewIndex();

  /** The open turn so far; undefined while none is open. */
  get live(): LiveTurn | undefined {
    return this.index.live?.toJSON();
  }

  /** What has no outcome yet, oldest first. Show those with `card`. */
  get pending(): ViewPending[] {
    const key = (p: ViewPending): string => p.askedAt ?? "";
    return [...this.index.pending.values()].sort((a, b) => order(key(a), key(b)) || order(a.id, b.id));
  }

  /** The sessions that this one's agent started, oldest first. */
  get children(): Child[] {
    return [...this.index.children.values()];
  }

  /** The background work of the agent, oldest first. */
  get tasks(): Task[] {
    return [...this.index.tasks.values()];
  }

  /** The prompts that wait for their turn, oldest first. */
  get queue(): QueuedPrompt[] {
    return [...this.index.queue.values()];
  }

  /** What the model sees. It reads all items. */
  get surface(): Surface {
    const surface: Surface = { ...this.index.compacted, seqs: [] };
    for (const it of this.items) {
      if (modelSeq(it) > (surface.upTo ?? 0) && !it.void) surface.seqs.push(it.seq);
    }
    return surface;
  }

  /** Blocks of the open turn that have a message or were retracted. */
  get closedBlocks(): number[] {
    return [...this.index.closed].sort((a, b) => a - b);
  }

  /** The view as JSON: a copy, equal for equal views, that {@link newView} reads. */
  toJSON(): View {
    const { index: _, ...plain } = this;
    const { pending, children, tasks, queue, surface, closedBlocks, live } = this;
    return read<View>("View", { ...defined(plain), pending, children, tasks, queue, surface, closedBlocks, ...defined({ live }) });
  }
}

/** Finds things in a view; all of it can be made from the view's JSON. */
export class ViewIndex {
  /** undefined while no turn is open. */
  live: OpenTurn | undefined;
  readonly pending = new Map<string, ViewPending>();
  /** How many of them have a card, and how many an audit event. */
  cards = 0;
  asked = 0;
  readonly children = new Map<string, Child>();
  readonly tasks = new Map<string, Task>();
  readonly queue = new Map<string, QueuedPrompt>();
  compacted: Omit<Surface, "seqs"> = {};
  /** The last `session/live` was a part. */
  more = false;

  readonly turns = new Set<string>();
  /** Items of messages of the open turn, by block. */
  readonly blocks = new Map<number, number>();
  closed = new Set<number>();
  readonly calls = new Map<string, number>();
  readonly running = new Map<string, number>();
  readonly agents = new Map<string, number>();
  /** Requests that were asked and not decided. */
  readonly open = new Map<string, DecisionPlace>();

  putPending(p: ViewPending): void {
    const old = this.pending.get(p.id);
    if (old) this.count(old, -1);
    this.pending.set(p.id, p);
    this.count(p, 1);
  }

  dropPending(id: string): void {
    const old = this.pending.get(id);
    if (!old) return;
    this.count(old, -1);
    this.pending.delete(id);
  }

  private count(p: ViewPending, by: number): void {
    if (p.card) this.cards += by;
    if (p.seq) this.asked += by;
  }
}

/** The event by which an item reached the model, 0 if it did not. */
function modelSeq(it: Item): number {
  switch (it.kind) {
    case "user":
    case "steering":
    case "context":
    case "assistant":
      return it.seq;
    case "tool":
      return it.tool?.resultSeq ?? 0;
    case "agent":
      return it.agent?.endSeq ?? 0;
  }
  return 0;
}

/** Compares by code points: units of UTF-16 would put U+FF5E after U+1F600. */
function order(a: string, b: string): number {
  for (let i = 0; ; i++) {
    const [x, y] = [a.codePointAt(i) ?? -1, b.codePointAt(i) ?? -1];
    if (x !== y || x < 0) return x - y;
  }
}

/** The object without members that are undefined. */
export function defined<T extends object>(o: T): T {
  return Object.fromEntries(Object.entries(o).filter(([, v]) => v !== undefined)) as T;
}

/** Works the status out anew: by what frames said is pending, or by the log where no frame said anything. */
export function settle(v: SessionView): void {
  const waiting = v.subscribed ? v.index.cards : v.index.asked;
  v.status = waiting > 0 ? "requires-action" : v.turnId !== "" || v.index.live ? "running" : "idle";
}

/** Rebuilds the index from turns and items. */
export function reindex(v: SessionView): void {
  for (const t of v.turns) v.index.turns.add(t.turnId);
  if (v.turnId !== "" && v.turns.at(-1)?.turnId !== v.turnId) throw new ShapeError(`view: open turn ${v.turnId}: want it as the last of turns`);
  const opened = new Map<string, Decision>();
  v.items.forEach((it, i) => {
    if (it === undefined || (it.kind === "tool" && !it.tool) || (it.kind === "agent" && !it.agent)) {
      throw new ShapeError(`view: item ${i}: want an item with what its kind names, got none`);
    }
    if (it.kind === "tool" && it.tool) {
      v.index.calls.set(it.tool.callId, i);
      if (it.tool.running) v.index.running.set(it.tool.callId, i);
      it.tool.decisions?.forEach((d, at) => d && indexDecision(v, opened, d, { item: i, at }));
    } else if (it.kind === "agent" && it.agent) v.index.agents.set(it.agent.childSessionId, i);
    else if (it.kind === "assistant" || it.kind === "reasoning") indexBlocks(v, i);
    else if (it.decision) indexDecision(v, opened, it.decision, { item: i, at: -1 });
  });
  for (const [id, d] of opened) if (d.seq) v.index.open.delete(id);
}

/** Keeps the decision of an id that was asked for last. */
function indexDecision(v: SessionView, opened: Map<string, Decision>, d: Decision, place: DecisionPlace): void {
  const old = opened.get(d.id);
  if (old && (old.askedSeq ?? 0) >= (d.askedSeq ?? 0)) return;
  opened.set(d.id, d);
  v.index.open.set(d.id, place);
}

/** Finds a message of the open turn by its blocks. */
export function indexBlocks(v: SessionView, item: number): void {
  const it = v.items[item];
  if (!it || v.turnId === "" || it.turnId !== v.turnId || it.seq < (v.turns.at(-1)?.startSeq ?? 0)) return;
  for (const n of it.blocks ?? []) v.index.blocks.set(n, item);
}
