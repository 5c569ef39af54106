/** Derives idempotency keys, so that a repeated request has the same key. */

import { createHash } from "node:crypto";

/** Returns the same UUID (version 8) for the same words. */
export function keyOf(...words: (string | number)[]): string {
  const bytes = createHash("sha256").update(words.join("|")).digest().subarray(0, 16);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x80, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
