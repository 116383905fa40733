import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import type { ClientOptions } from "../client.js";

/**
 * Finds the host of this machine by its state directory, anew for each connection: `new MuxClient({ ...localHost(), WebSocket: NodeWebSocket })`. The
 * directory is the argument, else $MUXHOST_STATE_DIR, else muxhost below $XDG_STATE_HOME or ~/.local/state.
 */
export function localHost(stateDir?: string): Pick<ClientOptions, "url" | "token"> {
  const dir = stateDir ?? process.env["MUXHOST_STATE_DIR"] ?? join(process.env["XDG_STATE_HOME"] ?? join(homedir(), ".local", "state"), "muxhost");
  return {
    url: async () => {
      const file = JSON.parse(await readFile(join(dir, "host.json"), "utf8")) as { url?: string };
      if (!file.url) throw new Error(`${join(dir, "host.json")} names no url`);
      return file.url;
    },
    token: async () => (await readFile(join(dir, "token"), "utf8")).trim(),
  };
}
