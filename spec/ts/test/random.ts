/** Random values that are the same in each run of a seed. */
export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = seed >>> 0;
  }

  /** An integer from 0 to n-1 (mulberry32). */
  below(n: number): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let x = this.state;
    x = Math.imul(x ^ (x >>> 15), x | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return Math.floor((((x ^ (x >>> 14)) >>> 0) / 4294967296) * n);
  }

  pick<T>(...of: T[]): T {
    return of[this.below(of.length)] as T;
  }

  name(): string {
    return this.pick("x", "vendor", "é", "__proto__", "constructor", "toString", "日本", "a.b/c", "😀", "", "then") + this.pick("", String(this.below(100)));
  }

  /** Any JSON. */
  json(depth = 3): unknown {
    switch (this.below(depth > 0 ? 8 : 6)) {
      case 0:
        return null;
      case 1:
        return this.below(2) === 0;
      case 2:
        return this.pick(0, 1, 1.5, -1e-7, 2 ** 53 - 1, 1e21, this.below(1000));
      case 3:
      case 4:
      case 5:
        return this.name();
      case 6:
        return Array.from({ length: this.below(4) }, () => this.json(depth - 1));
    }
    return this.object(depth - 1);
  }

  object(depth = 2): { [name: string]: unknown } {
    const text = Array.from({ length: this.below(4) }, () => `${JSON.stringify(this.name())}:${JSON.stringify(this.json(depth))}`);
    return JSON.parse(`{${text.join()}}`) as { [name: string]: unknown };
  }
}
