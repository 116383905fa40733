import { applyFrame, newView } from "./fold_frame.js";
import type { FoldIssue } from "./fold_frame.js";
import { isObject } from "./shape.js";
import type { SessionView } from "./view.js";
import { sessionOf } from "./wire.js";
import type { Frame } from "./wire.js";

/** Keeps the view of every session from the frames of a client. */
export class Folder {
  /** By session id. They are shared: the next `apply` changes them. */
  readonly views = new Map<string, SessionView>();

  /** Folds one frame. It returns the session that it belongs to, "" for none, and what was wrong with it. */
  apply(frame: Frame): { session: string; issue: FoldIssue | undefined } {
    const session = sessionOf(frame);
    if (frame.method === "host/subscribed") {
      for (const v of this.views.values()) applyFrame(v, frame);
      return { session: "", issue: undefined };
    }
    if (session === "") return { session, issue: undefined };
    if (frame.method === "client/reset" || (frame.method === "host/session-removed" && isObject(frame.params) && frame.params["reason"] === "deleted")) {
      this.views.delete(session);
      return { session, issue: undefined };
    }
    const view = this.views.get(session) ?? newView();
    this.views.set(session, view);
    return { session, issue: applyFrame(view, frame) };
  }
}
