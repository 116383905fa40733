/** Real hosts for tests. The programs are built once, into build/, by `npm test`. */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";

const bin = join(import.meta.dirname, "..", "bin");

/** A `muxhost serve` with a state directory of its own. */
export interface HostProcess {
  url: string;
  token: string;
  stateDir: string;
  /** An empty folder. */
  cwd: string;
  child: ChildProcess;
}

/** Starts a host; with `from`, on that one's state and address after it ended. */
export async function startHost(t: TestContext, from?: HostProcess): Promise<HostProcess> {
  const root = from ? join(from.stateDir, "..") : mkdtempSync(join(tmpdir(), "muxhost-ts-"));
  const stateDir = join(root, "state");
  const listen = from ? new URL(from.url).host : "127.0.0.1:0";
  const child = spawn(join(bin, "muxhost"), ["serve", "--listen", listen, "--state-dir", stateDir], { stdio: ["ignore", "pipe", "inherit"], cwd: root });
  t.after(async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill("SIGKILL");
      await once(child, "exit");
    }
    rmSync(root, { recursive: true, force: true });
  });
  const [url] = (await once(createInterface(child.stdout as NodeJS.ReadableStream), "line")) as [string];
  return { url, token: readFileSync(join(stateDir, "token"), "utf8").trim(), stateDir, cwd: root, child };
}

/** Kills a host as a power loss would. */
export async function kill(host: HostProcess): Promise<void> {
  host.child.kill("SIGKILL");
  await once(host.child, "exit");
}

/** Hosts in memory whose default agent is the demo, without delays: one for each vector. */
export class VectorHosts {
  private readonly child = spawn(join(bin, "vectorhost"), { stdio: ["pipe", "pipe", "inherit"] });
  private readonly lines = createInterface(this.child.stdout)[Symbol.asyncIterator]();

  async fresh(): Promise<{ url: string; token: string; cwd: string }> {
    this.child.stdin.write("\n");
    return JSON.parse((await this.lines.next()).value as string) as { url: string; token: string; cwd: string };
  }

  async stop(): Promise<void> {
    const gone = once(this.child, "exit");
    this.child.stdin.end();
    await gone;
  }
}
