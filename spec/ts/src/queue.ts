import type { Frame } from "./wire.js";

/** The buffer between the connections and the one consumer of frames. It outlives connections. Sizes are characters of messages. */
export class Queue {
  readonly soft: number;
  readonly hard: number;
  private items: { frame: Frame; size: number }[] = [];
  private head = 0;
  private size = 0;
  private calls = 0;
  private end: { error: Error | undefined } | undefined;
  private consumer: (() => void) | undefined;
  /** Told whenever something changed that may let the client connect. */
  onChange: () => void = () => {};

  constructor(soft: number) {
    this.soft = soft;
    this.hard = 4 * soft;
  }

  /** Whether no frame may be added: the buffer is full, and no call waits that frames may come before. */
  get full(): boolean {
    return this.size >= (this.calls > 0 ? this.hard : this.soft);
  }

  /** Whether a call cannot be made: frames that nobody takes would come before its response. */
  get overrun(): boolean {
    return this.size >= this.hard;
  }

  /** Whether a connection may be opened: there is room for what it will bring. */
  get open(): boolean {
    return this.calls > 0 ? this.size < this.hard : this.size <= this.soft / 2;
  }

  put(frame: Frame, size: number): void {
    this.items.push({ frame, size });
    this.size += size;
    this.consumer?.();
  }

  /** Counts the calls that wait for a response. */
  waiting(n: 1 | -1): void {
    this.calls += n;
    this.onChange();
  }

  /** Says that nothing more will come, and why. */
  finish(error: Error | undefined): void {
    this.end ??= { error };
    this.consumer?.();
  }

  /** The next frame, waiting for one; undefined after the last, or when the signal is given. It throws what the client ended with. */
  async take(signal?: AbortSignal): Promise<Frame | undefined> {
    if (this.consumer) throw new Error("frames() has one consumer at a time");
    for (;;) {
      if (signal?.aborted) return undefined;
      const it = this.items[this.head];
      if (it) return this.pop(it);
      if (this.end?.error) throw this.end.error;
      if (this.end) return undefined;
      await this.change(signal);
    }
  }

  private pop(it: { frame: Frame; size: number }): Frame {
    this.size -= it.size;
    this.items[this.head++] = undefined as never;
    if (this.head > 64 && this.head * 2 > this.items.length) {
      this.items = this.items.slice(this.head);
      this.head = 0;
    }
    this.onChange();
    return it.frame;
  }

  private async change(signal: AbortSignal | undefined): Promise<void> {
    try {
      await unlessAborted(signal, (resolve) => (this.consumer = resolve));
    } finally {
      this.consumer = undefined;
    }
  }
}

/** Waits until `wait` resolves or the signal is given, and leaves no listener behind. */
export function unlessAborted(signal: AbortSignal | undefined, wait: (resolve: () => void) => void): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      signal?.removeEventListener("abort", done);
      resolve();
    };
    signal?.addEventListener("abort", done);
    wait(done);
  });
}
