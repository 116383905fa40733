import type { Book } from "./book.js";
import { HostError } from "./errors.js";
import type { SubscribeParams, SubscribeResult } from "./gen.js";
import { hostError } from "./link.js";
import type { Link } from "./link.js";
import type { Frame } from "./wire.js";

/** Subscribes everything again on a new connection. `notice` hands a frame of the client's own to the consumer. */
export async function resume(link: Link, book: Book, notice: (f: Frame) => void): Promise<void> {
  const { calls, left } = book.resumption();
  for (const params of calls) await resumeCall({ link, book, notice }, params);
  if (left.length > 0) await link.call("mux.unsubscribe", { sessions: left });
}

interface Resume {
  link: Link;
  book: Book;
  notice: (f: Frame) => void;
}

/**
 * Makes one call of the resume. Entries that fail start anew or are dropped, with a notice to the consumer; if all fail, the host names only the first, and the
 * others are tried without it.
 */
async function resumeCall(r: Resume, params: SubscribeParams): Promise<void> {
  let results: SubscribeResult;
  for (;;) {
    try {
      results = (await r.link.call("mux.subscribe", params)) as SubscribeResult;
      break;
    } catch (err) {
      const [first, ...sessions] = params.sessions ?? [];
      if (!(err instanceof HostError) || !first) throw err;
      await resumeFailed(r, first.sessionId, err);
      if (sessions.length === 0 && !params.host) return;
      params = { ...params, sessions };
    }
  }
  for (const s of results) if (s.error) await resumeFailed(r, s.sessionId, hostError("mux.subscribe", { ...s.error }));
}

/** Deals with a session that could not be resumed from its cursor. */
async function resumeFailed(r: Resume, session: string, err: HostError): Promise<void> {
  switch (err.kind) {
    case "cursor-expired":
    case "cursor-ahead":
      return restart(r, session);
    case "session-not-found":
      return gone(r, session, "deleted");
    case "forbidden":
      return gone(r, session, "forbidden");
  }
  throw err;
}

/** Subscribes a session from its first event, after a reset. */
async function restart(r: Resume, session: string): Promise<void> {
  r.notice({ method: "client/reset", params: { sessionId: session } });
  const params = r.book.restart(session);
  if (!params) return;
  try {
    await r.link.call("mux.subscribe", params);
  } catch (err) {
    if (!(err instanceof HostError) || err.kind !== "session-not-found") throw err;
    gone(r, session, "deleted");
  }
}

/** Drops a session and tells the consumer. */
function gone(r: Resume, session: string, reason: string): void {
  r.notice({ method: "session/unsubscribed", params: { sessionId: session, reason } });
  r.book.remove(session);
}
