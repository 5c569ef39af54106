/** Idempotency keys that are the same for the same thing. */

import { createHash } from "node:crypto";

/** Makes a UUID of words, version 8. */
export function keyOf(...words: (string | number)[]): string {
  const bytes = createHash("sha256").update(words.join("|")).digest().subarray(0, 16);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x80, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
