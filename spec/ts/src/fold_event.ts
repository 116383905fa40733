import type {
  AgentCompleted, AgentSpawned, ApprovalAsked, ApprovalDecided, CommandAvailable, ContentBlock, Decision, ErrorReported, Events, Item, ItemKind, ModelStart,
  ModelSwitched, PromptDequeued, PromptQueued, QuestionAsked, QuestionDecided, SessionCompacted, SessionConfigured, SessionCreated, SessionRenamed, TaskCompleted,
  TaskStarted, TodoWrite, ToolCall, ToolCard, ToolResult, TurnEnd, TurnStart, UsageUpdated, UserMessage, ViewPending,
} from "./gen.js";
import { isObject, setMember } from "./shape.js";
import { defined, settle } from "./view.js";
import type { SessionView } from "./view.js";
import { endTurn, joinTurn, openTurn, stopTool } from "./fold_turn.js";
import { message, retract } from "./fold_text.js";
import type { Envelope } from "./wire.js";

type Fold<P> = (v: SessionView, e: Envelope, p: P) => void;

/** What each durable event does to a view; a type that is not here does nothing. */
export const durable: { readonly [T in keyof Events]?: Fold<Events[T]> } = {
  "session/created": created,
  "session/resumed": (v) => void (v.closed = false),
  "session/renamed": (v, _, p: SessionRenamed) => void (v.title = p.title),
  "session/configured": configured,
  "session/compacted": compacted,
  "session/closed": (v) => void (v.closed = true),
  "prompt/queued": queued,
  "prompt/dequeued": (v, _, p: PromptDequeued) => void v.index.queue.delete(p.promptId),
  "turn/start": started,
  "turn/end": (v, e, p: TurnEnd) => endTurn(v, e, p),
  "user/message": (v, e, p) => input(v, e, "user", p),
  "steering/message": (v, e, p) => input(v, e, "steering", p),
  "context/message": (v, e, p) => input(v, e, "context", p),
  "prompt/blocked": (v, e, p) => input(v, e, "blocked", { promptId: p.promptId }, { message: p.reason }),
  "assistant/message": (v, e, p) => message(v, e, "assistant", p),
  "reasoning/message": (v, e, p) => message(v, e, "reasoning", p),
  "assistant/retracted": (v, e, p) => retract(v, e, p.blocks),
  "tool/call": toolCall,
  "tool/result": toolResult,
  "approval/asked": (v, e, p: ApprovalAsked) =>
    ask(v, e, { kind: "approval", ...pick(p, "id", "callId", "tool", "input", "inputHash", "truncated", "reason", "options", "expiresAt") }),
  "question/asked": (v, e, p: QuestionAsked) => ask(v, e, { kind: "question", ...pick(p, "id", "questions", "expiresAt") }),
  "approval/decided": (v, e, p: ApprovalDecided) => decide(v, e, "approval", p.id, pick(p, "outcome", "origin", "by", "feedback", "grant")),
  "question/decided": (v, e, p: QuestionDecided) => decide(v, e, "question", p.id, pick(p, "outcome", "origin", "by", "answers")),
  "agent/spawned": spawned,
  "agent/completed": completed,
  "todo/write": (v, _, p: TodoWrite) => void (v.todos = p.todos),
  "task/started": (v, e, p: TaskStarted) => void v.index.tasks.set(p.taskId, defined({ ...p, startedAt: e.ts })),
  "task/completed": taskEnded,
  "model/start": (v, _, p: ModelStart) => void (v.model = p.model),
  "model/switched": (v, _, p: ModelSwitched) => void (v.model = p.to),
  "usage/updated": (v, _, p: UsageUpdated) => void (v.usage = p.usage),
  "command/available": (v, _, p: CommandAvailable) => void (v.commands = p.commands),
  "error": (v, e, p: ErrorReported) => void addItem(v, e, "error", nonEmpty({ code: p.code, message: p.message, retryable: p.retryable })),
};

/** Appends an item made by the event and returns its place. */
export function addItem(v: SessionView, e: Envelope, kind: ItemKind, rest: Partial<Item> = {}): number {
  v.items.push(defined({ kind, seq: e.seq, ts: e.ts, turnId: e.turnId || undefined, by: e.by, ...rest }) as Item);
  return v.items.length - 1;
}

function pick<T extends object, K extends keyof T>(o: T, ...names: K[]): Pick<T, K> {
  return defined(Object.fromEntries(names.map((n) => [n, o[n]]))) as Pick<T, K>;
}

/** The object without members that are empty. */
function nonEmpty<T extends object>(o: T): Partial<T> {
  const empty = (x: unknown): boolean => x === undefined || x === "" || x === 0 || x === false || (Array.isArray(x) && x.length === 0);
  return Object.fromEntries(Object.entries(o).filter(([, x]) => !empty(x))) as Partial<T>;
}

function created(v: SessionView, e: Envelope, p: SessionCreated): void {
  if (e.seq > 1) return; // the source's, in the log of a fork
  v.agent = p.agent;
  v.cwd = p.cwd;
  v.title = p.title ?? "";
  v.origin = p.origin;
  v.parentSessionId = p.parentSessionId ?? "";
  v.rootSessionId = p.rootSessionId;
  v.depth = p.depth;
  v.callId = p.callId ?? "";
  v.forkedFrom = p.forkedFrom;
  v.createdAt = e.ts;
  v.config = p.config;
  v.policy = p.policy;
  v.budget = p.budget;
  v.labels = p.labels;
}

/** Changes what the event names. Options are merged by name. */
function configured(v: SessionView, e: Envelope, p: SessionConfigured): void {
  if (p.policy) v.policy = p.policy;
  if (p.budget) v.budget = p.budget;
  if (isObject(e.data["labels"])) v.labels = p.labels ?? {};
  if (!isObject(p.options) || Object.keys(p.options).length === 0) return;
  v.options = { ...v.options };
  for (const [name, value] of Object.entries(p.options)) setMember(v.options, name, value);
}

function compacted(v: SessionView, e: Envelope, p: SessionCompacted): void {
  v.index.compacted = nonEmpty({ upTo: p.upTo, summary: p.content });
  addItem(v, e, "compaction", nonEmpty({ content: p.content, upTo: p.upTo }));
}

function queued(v: SessionView, e: Envelope, p: PromptQueued): void {
  const { promptId, mode, content } = p;
  v.index.queue.set(promptId, defined({ promptId, mode, ...nonEmpty({ content, turnId: e.turnId }), by: e.by, queuedAt: e.ts }));
}

function started(v: SessionView, e: Envelope, p: TurnStart): void {
  v.index.queue.delete(p.promptId ?? "");
  openTurn(v, e, p);
}

/** Appends what a person said; it leaves the queue with that. */
function input(v: SessionView, e: Envelope, kind: ItemKind, p: Partial<UserMessage>, rest: Partial<Item> = {}): void {
  v.index.queue.delete(p.promptId ?? "");
  addItem(v, e, kind, nonEmpty({ promptId: p.promptId, content: p.content, ...rest }));
}

function toolCall(v: SessionView, e: Envelope, p: ToolCall): void {
  joinTurn(v, e);
  stopTool(v, p.callId);
  const { name, kind, title, ...rest } = p;
  const at = addItem(v, e, "tool", { tool: { ...rest, ...nonEmpty({ name, kind, title }), running: true } });
  v.index.calls.set(p.callId, at);
  v.index.running.set(p.callId, at);
  const live = v.index.live;
  if (live && (e.turnId === "" || e.turnId === live.id)) live.openTool(p.callId);
}

/** Replaces the card of an item by one with these members. */
export function setTool(v: SessionView, at: number, change: Partial<ToolCard>): void {
  const it = v.items[at];
  if (it?.tool) v.items[at] = { ...it, tool: defined({ ...it.tool, ...change }) };
}

/** Ends a tool card; one whose call was not seen is made. */
function toolResult(v: SessionView, e: Envelope, p: ToolResult): void {
  joinTurn(v, e);
  stopTool(v, p.callId);
  let at = v.index.calls.get(p.callId);
  if (at === undefined) {
    at = addItem(v, e, "tool", { tool: { callId: p.callId } });
    v.index.calls.set(p.callId, at);
  }
  const none = { content: undefined, isError: undefined, errorCode: undefined, durationMs: undefined, details: undefined };
  const { content, isError, errorCode, durationMs, details } = p;
  setTool(v, at, { ...none, resultSeq: e.seq, ...nonEmpty({ content, isError, errorCode, durationMs }), details });
}

/**
 * Makes a request pending and begins its history, on the tool's card where there is one. What the audit event says wins over what a frame said.
 */
function ask(v: SessionView, e: Envelope, asked: ViewPending): void {
  const card = v.index.pending.get(asked.id)?.card;
  v.index.putPending(defined({ ...asked, seq: e.seq, turnId: e.turnId || undefined, askedAt: e.ts, card }));
  const decision: Decision = { id: asked.id, askedSeq: e.seq, ...nonEmpty({ questions: asked.questions }) };
  const tool = asked.callId ? v.index.calls.get(asked.callId) : undefined;
  if (tool === undefined) v.index.open.set(asked.id, { item: addItem(v, e, asked.kind, { decision }), at: -1 });
  else {
    const decisions = [...(v.items[tool]?.tool?.decisions ?? []), decision];
    setTool(v, tool, { decisions });
    v.index.open.set(asked.id, { item: tool, at: decisions.length - 1 });
  }
  settle(v);
}

/** Ends a request and its history. */
function decide(v: SessionView, e: Envelope, kind: "approval" | "question", id: string, how: Partial<Decision>): void {
  v.index.dropPending(id);
  const place = v.index.open.get(id);
  v.index.open.delete(id);
  const end = defined({ seq: e.seq, ts: e.ts, ...nonEmpty(how) });
  if (!place) addItem(v, e, kind, { decision: { id, ...end } });
  else if (place.at < 0) {
    const it = v.items[place.item];
    if (it?.decision) v.items[place.item] = { ...it, decision: { ...it.decision, ...end } };
  } else {
    const decisions = [...(v.items[place.item]?.tool?.decisions ?? [])];
    decisions[place.at] = { ...(decisions[place.at] ?? { id }), ...end };
    setTool(v, place.item, { decisions });
  }
  settle(v);
}

function spawned(v: SessionView, e: Envelope, p: AgentSpawned): void {
  const at = addItem(v, e, "agent", { agent: { ...p } });
  v.index.agents.set(p.childSessionId, at);
  const { childSessionId: sessionId, ...rest } = p;
  v.index.children.set(sessionId, { sessionId, ...rest });
}

function completed(v: SessionView, e: Envelope, p: AgentCompleted): void {
  const { childSessionId: sessionId, callId } = p;
  let at = v.index.agents.get(sessionId);
  if (at === undefined) {
    at = addItem(v, e, "agent", { agent: defined({ childSessionId: sessionId, callId }) });
    v.index.agents.set(sessionId, at);
  }
  const it = v.items[at];
  const end: { status?: string; result?: ContentBlock[] } = { status: undefined, result: undefined, ...nonEmpty({ status: p.status, result: p.result }) };
  if (it?.agent) v.items[at] = { ...it, agent: defined({ ...it.agent, ...end, endSeq: e.seq }) };
  const child = v.index.children.get(sessionId) ?? { sessionId, callId };
  v.index.children.set(sessionId, defined({ ...child, status: end.status }));
}

function taskEnded(v: SessionView, e: Envelope, p: TaskCompleted): void {
  const task = v.index.tasks.get(p.taskId) ?? { taskId: p.taskId };
  const end = { status: undefined, detail: undefined, finishedAt: e.ts, ...nonEmpty({ status: p.status, detail: p.detail }) };
  v.index.tasks.set(p.taskId, defined({ ...task, ...end }));
}
