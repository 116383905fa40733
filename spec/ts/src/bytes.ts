/** Sizes on the wire are those of UTF-8; strings here are UTF-16. All texts are well-formed. */

/** How much of a tool's progress is kept, in bytes. */
export const maxProgress = 64 * 1024;

/** The string with every half of a surrogate pair replaced by U+FFFD. */
export function wellFormed(s: string): string {
  if (!/[\uD800-\uDFFF]/.test(s)) return s;
  return s.replace(/[\uD800-\uDBFF][\uDC00-\uDFFF]|[\uD800-\uDFFF]/g, (m) => (m.length === 2 ? m : "\uFFFD"));
}

/** How many bytes the text takes in UTF-8. */
export function byteLength(s: string): number {
  let n = s.length;
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c < 0x80) continue;
    if (c >= 0xd800 && c < 0xdc00) {
      n += 2; // two units, four bytes
      i++;
    } else n += c < 0x800 ? 1 : 2;
  }
  return n;
}

/** The last `limit` bytes of the text or fewer, from the start of a character. */
export function tail(s: string, limit: number): string {
  let room = limit;
  let i = s.length;
  while (i > 0) {
    const c = s.charCodeAt(i - 1);
    const low = c >= 0xdc00 && c < 0xe000;
    const size = low ? 4 : c < 0x80 ? 1 : c < 0x800 ? 2 : 3;
    if (size > room) break;
    room -= size;
    i -= low ? 2 : 1;
  }
  return s.slice(i);
}

/** Text that arrives in numbered chunks. */
export class Stream {
  text = "";
  /** The length of the text in UTF-8. */
  bytes = 0;
  /** Chunks so far. */
  to = 0;

  /** Appends chunks [from, to) by the rule of the contract and says what they were. */
  add(from: number, to: number, text: string): "added" | "had" | "missed" {
    if (to <= this.to) return "had";
    if (from !== this.to) return "missed";
    this.append(text);
    this.to = to;
    return "added";
  }

  clear(): void {
    this.text = "";
    this.bytes = this.to = 0;
  }

  append(text: string): void {
    this.text += text;
    this.bytes += byteLength(text);
  }

  /** Forgets what is out of reach of the tail; once in a while, so that the cost per byte is constant. */
  keepTail(): void {
    if (this.bytes <= 2 * maxProgress) return;
    this.text = tail(this.text, maxProgress);
    this.bytes = byteLength(this.text);
  }

  /** The last 64 KiB. */
  tail(): string {
    return this.bytes <= maxProgress ? this.text : tail(this.text, maxProgress);
  }
}
