/** What a page does: it compiles without the types of Node. */
import { MuxClient, isFrame } from "@muxhost/client";
import { Folder } from "@muxhost/client/fold";
import { MockTransport } from "@muxhost/client/mock";
import type { ErrorKind, View } from "@muxhost/client/protocol";

/** Shows the sessions of the host that served the page, with its cookie. */
export async function show(draw: (session: string, view: View) => void, failed: (kind: ErrorKind | (string & {})) => void): Promise<void> {
  const client = new MuxClient({ url: location.origin, onState: (state) => (document.title = state) });
  addEventListener("online", () => client.retry());
  await client.subscribe({ host: true });
  const folder = new Folder();
  for await (const frame of client.frames()) {
    const { session } = folder.apply(frame);
    const view = folder.views.get(session);
    if (view) draw(session, view);
    if (isFrame(frame, "session/unsubscribed")) failed(frame.params.reason);
  }
}

export const mock = (): MuxClient => new MuxClient({ url: "http://mock", WebSocket: new MockTransport().WebSocket });
