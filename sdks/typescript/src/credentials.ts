/**
 * Validation of API keys, webhook secrets and URLs.
 *
 * Values from files and environments often end in a line feed or start with a byte order mark. No
 * error message contains a key or a secret, because messages end up in logs.
 */

const SURROUNDING = " \t\r\n\v\f\u00a0\ufeff";
const API_KEY = /^sk_[A-Za-z0-9._~+/=-]+$/;
/** Matches an API key in a string, but not the prefix `sk_test_`, which error messages contain. */
const KEY_IN_TEXT = /(?<!\w)sk_(?!(?:test|live)_(?!\w))[A-Za-z0-9._~+/=-]+/g;
/** A URL without a user name, which `fetch` rejects, and without a query or a fragment. */
const BASE_URL = /^https?:\/\/[^\s/?#@]+(\/[^\s?#]*)?$/i;
const SECRET = /^(?:whsec_)?([A-Za-z0-9+/]+={0,2})$/;

/** Returns an API key without surrounding white space. Throws if it is invalid. */
export function readApiKey(text: string): string {
  const key = strip(text, "an API key");
  if (!key.startsWith("sk_")) throw new TypeError("an API key must begin with sk_");
  if (!API_KEY.test(key)) {
    throw new TypeError("the API key is empty after sk_, or contains an invalid character");
  }
  return key;
}

/** Returns a base URL without surrounding white space. Throws if it is invalid. */
export function readBaseUrl(text: string): string {
  const url = strip(text, "a base URL");
  if (!/^https?:\/\//i.test(url)) {
    throw new TypeError("a base URL must begin with https:// or http://");
  }
  if (!BASE_URL.test(url) || !isUrl(url)) {
    throw new TypeError("a base URL must be a URL such as https://pay.example.com");
  }
  return url.replace(/\/$/, "");
}

function isUrl(text: string): boolean {
  try {
    new URL(text);
    return true;
  } catch {
    return false;
  }
}

/** Returns the key of a webhook secret. Throws if the secret is invalid. */
export function readWebhookSecret(text: string): Uint8Array<ArrayBuffer> {
  const base64 = SECRET.exec(strip(text, "a webhook secret"))?.[1];
  const bytes = base64 === undefined ? null : decodeBase64(base64);
  if (!bytes?.length) throw new TypeError("a webhook secret must be whsec_ followed by base64");
  return bytes;
}

/** Decodes padded base64. Returns null if it is invalid. */
export function decodeBase64(base64: string): Uint8Array<ArrayBuffer> | null {
  if (base64.length % 4 !== 0) return null;
  try {
    return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  } catch {
    return null;
  }
}

/** Replaces API keys in a response, because some error pages repeat the request's headers. */
export function hideKeys(text: string): string {
  return text.replace(KEY_IN_TEXT, "sk_…");
}

function strip(text: unknown, name: string): string {
  if (typeof text !== "string") throw new TypeError(`${name} must be a string, not ${typeof text}`);
  let start = 0;
  let end = text.length;
  while (start < end && SURROUNDING.includes(text.charAt(start))) start += 1;
  while (end > start && SURROUNDING.includes(text.charAt(end - 1))) end -= 1;
  return text.slice(start, end);
}
