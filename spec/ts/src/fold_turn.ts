import type { Turn, TurnEnd, TurnStart } from "./gen.js";
import { OpenTurn } from "./turn.js";
import { defined, settle } from "./view.js";
import type { SessionView } from "./view.js";
import type { Envelope } from "./wire.js";

/** Begins a turn; one that is open still is over. */
export function openTurn(v: SessionView, e: Envelope, p: Partial<TurnStart>): void {
  if (v.turnId === e.turnId) v.index.live = undefined;
  clearTurn(v);
  v.turnId = e.turnId;
  v.index.turns.add(e.turnId);
  const promptId = p.promptId || undefined;
  v.turns.push(defined({ turnId: e.turnId, trigger: p.trigger || undefined, promptId, startedAt: e.ts, startSeq: e.seq }) as Turn);
  if (e.turnId === "") v.index.live = undefined;
  else if (v.index.live?.id !== e.turnId) v.index.live = freshLive(v, e.turnId);
  settle(v);
}

/** Opens the turn of the event in a log whose beginning was not seen. */
export function joinTurn(v: SessionView, e: Envelope): void {
  if (v.turnId === "" && v.turns.length === 0 && e.turnId !== "") openTurn(v, e, {});
}

export function endTurn(v: SessionView, e: Envelope, p: TurnEnd): void {
  joinTurn(v, e);
  const last = v.turns.at(-1);
  if (!last || v.turnId === "" || (e.turnId !== "" && e.turnId !== v.turnId)) {
    if (e.turnId !== "" && v.index.live?.id === e.turnId) {
      v.index.live = undefined; // its start was not seen
      if (v.turnId !== "") v.index.live = freshLive(v, v.turnId);
      settle(v);
    }
    return;
  }
  const { reason, message, usage } = p;
  v.turns[v.turns.length - 1] = defined({ ...last, reason: reason || undefined, message: message || undefined, usage, endedAt: e.ts, endSeq: e.seq });
  clearTurn(v);
  v.index.live = undefined;
  settle(v);
}

/** Closes the open turn's blocks and running tools. */
export function clearTurn(v: SessionView): void {
  v.turnId = "";
  v.index.blocks.clear();
  v.index.closed = new Set();
  for (const id of [...v.index.running.keys()]) stopTool(v, id);
}

/** Ends what runs of a tool call, if it does. */
export function stopTool(v: SessionView, callId: string): void {
  const at = v.index.running.get(callId);
  const it = at === undefined ? undefined : v.items[at];
  if (at !== undefined && it?.tool) {
    const { running: _, ...tool } = it.tool;
    v.items[at] = { ...it, tool };
    v.index.running.delete(callId);
  }
  v.index.live?.tools.delete(callId);
}

/** Whether the turn was seen and is not the open one. */
export function over(v: SessionView, turnId: string): boolean {
  return v.index.turns.has(turnId) && turnId !== v.turnId;
}

/** The open turn as the log alone tells it: running tools, no text. */
export function freshLive(v: SessionView, turnId: string): OpenTurn {
  const { live, closed, running } = v.index;
  const turn = new OpenTurn(turnId, live?.id === turnId ? live.closed : new Set(turnId === v.turnId ? closed : []));
  const items = [...running.values()].sort((a, b) => a - b).map((at) => v.items[at]);
  for (const it of items) {
    if (it?.tool && (!it.turnId || it.turnId === turnId)) turn.openTool(it.tool.callId);
  }
  return turn;
}
