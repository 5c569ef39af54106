/** A client for the Payment Intent Service, for use on a merchant's server. */

export { Client } from "./client.js";
export type { ClientOptions } from "./client.js";
export type { RequestOptions } from "./calls.js";
export type { RetryPolicy } from "./retries.js";
export * from "./errors.js";
export type * from "./events.js";
export type * from "./models.js";
export type * from "./onchain.js";
export type * from "./parameters.js";
export { deriveDepositAddress, verifyDepositAddress, WrongDepositAddressError } from "./deposits.js";
export { API_VERSION, VERSION } from "./version.js";
export * as webhooks from "./webhooks.js";
