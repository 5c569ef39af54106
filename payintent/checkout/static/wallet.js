// Calls a browser's wallets (EIP-1193), and translates their errors into messages.
// @ts-check

import { addTexts, report, t } from "./checkout.js";

/** @typedef {import("../sdk/v1").Eip1193Provider} Provider */
/** @typedef {import("../sdk/v1").OnchainSession & { price: string }} Bill */
/** @typedef {import("../sdk/v1").OnchainStep} Step */
/** @typedef {import("../sdk/v1").OnchainCheck} Check */
/** @typedef {Bill["chain"]} Chain */
/** @typedef {ReturnType<typeof makeQueries>} Queries */

addTexts({/* texts */});

const PAUSE_MAX_MS = 1_000;
const PAUSE_FIRST_MS = 100;
const ATTEMPTS_MAX = 6; // a wallet's node may lag behind the node that returned a receipt
const ANSWER_MS = 10_000; // a query without a response must not delay the other queries
const ABSENCES_MAX = 6; // polls
/** A transaction that is not in a block after this time is slow or lost. */
export const PATIENCE_MS = 3 * 60_000;

const REJECTED = 4001;
const UNKNOWN_CHAIN = 4902;
/** @type {Record<string, string>} */
const KEYS = {
  [REJECTED]: "wallet_declined",
  4100: "wallet_account_refused",
  4900: "wallet_not_connected",
  4901: "wallet_not_on_chain",
  "-32002": "wallet_still_asking",
};

/** An error with a message for the buyer. */
export class Problem extends Error {}
/** The transaction had no effect: it was reverted, or the wallet cancelled or replaced it. */
export class Lost extends Problem {}
/** An error that a wallet returned. */
class WalletError extends Error {
  /** @type {any} */
  code;
}

/**
 * Calls a wallet.
 * @param {Provider} provider
 * @param {string} method
 * @param {unknown[]} [params]
 */
async function request(provider, method, params) {
  try {
    return await provider.request({ method, params });
  } catch (/** @type {any} */ cause) {
    const message = String(cause?.message ?? cause); // a wallet may throw a text
    const isRejection = /user (rejected|denied|cancell?ed)/i.test(message);
    const code = isRejection ? REJECTED : (cause?.data?.originalError?.code ?? cause?.code); // or wrap an error
    throw Object.assign(new WalletError(message), { code });
  }
}

/**
 * Parses a number from a wallet or its node.
 * @param {any} result
 */
function parseNumber(result) {
  try {
    return BigInt(result);
  } catch {
    throw new WalletError(`not a number: ${result}`);
  }
}

/**
 * Waits before the next poll. The delay doubles each time, up to one second.
 * @param {number} attempt
 */
function pause(attempt) {
  const ms = Math.min(PAUSE_FIRST_MS * 2 ** (attempt - 1), PAUSE_MAX_MS);
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * Returns the message for an error.
 * @param {any} error
 */
export function describe(error) {
  if (error instanceof Problem) return error.message;
  if (!(error instanceof WalletError)) {
    report(error);
    return t("page_failed");
  }
  const key = KEYS[error.code];
  if (key) return t(key);
  if (/insufficient funds/i.test(error.message)) return t("wallet_too_little_fee");
  return t("wallet_could_not");
}

/**
 * Returns the account that the buyer lets this page use.
 * @param {Provider} provider
 */
export async function account(provider) {
  const accounts = await request(provider, "eth_requestAccounts");
  if (accounts?.[0]) return accounts[0];
  throw new Problem(t("wallet_no_account"));
}

/**
 * Switches the wallet to the chain, and adds the chain if the wallet does not know it.
 * @param {Provider} provider
 * @param {Chain} chain
 */
export async function switchChain(provider, chain) {
  if (await isOn(provider, chain)) return;
  try {
    await switchTo(provider, chain);
  } catch (/** @type {any} */ error) {
    // Some wallets do not have a code for an unknown chain.
    if (!(error instanceof WalletError) || error.code in KEYS) throw error;
    await addChain(provider, chain, error);
  }
  // A wallet may report success without switching.
  if (!(await isOn(provider, chain))) throw wrongChain(chain);
}

/**
 * @param {Provider} provider
 * @param {Chain} chain
 */
export async function isOn(provider, chain) {
  return parseNumber(await request(provider, "eth_chainId")) === BigInt(chain.network_id);
}

/**
 * @param {Provider} provider
 * @param {Chain} chain
 */
async function switchTo(provider, chain) {
  const { chainId } = chain.wallet_chain;
  try {
    await request(provider, "wallet_switchEthereumChain", [{ chainId }]);
  } catch (/** @type {any} */ error) {
    throw error.code === REJECTED ? wrongChain(chain) : error;
  }
}

/**
 * @param {Provider} provider
 * @param {Chain} chain
 * @param {any} cause why the wallet did not switch
 */
async function addChain(provider, chain, cause) {
  const urls = /** @type {string[] | undefined} */ (chain.wallet_chain.rpcUrls);
  if (!urls?.length) {
    throw cause.code === UNKNOWN_CHAIN ? new Problem(t("wallet_unknown_chain", { chain: chain.name })) : cause;
  }
  await request(provider, "wallet_addEthereumChain", [chain.wallet_chain]);
  if (!(await isOn(provider, chain))) await switchTo(provider, chain); // not all wallets switch to the added chain
}

/** @param {Chain} chain */
function wrongChain({ name }) {
  return new Problem(t("wallet_wrong_chain", { chain: name }));
}

/**
 * Returns the chain queries that the bill contains. Only `{payer}` is replaced.
 * @param {Provider} provider
 * @param {string} payer
 * @param {Bill} bill
 */
export function makeQueries(provider, payer, bill) {
  const digits = payer.slice(2).toLowerCase();
  /** @param {Check} [check] */
  const call = async ({ to, data = "" } = {}) => {
    const params = [{ to, data: data.replace("{payer}", digits) }, "latest"];
    const result = await request(provider, "eth_call", params);
    if (/^0x[0-9a-f]+$/i.test(result)) return BigInt(result);
    throw new Problem(t("wallet_other_chain", { chain: bill.chain.name }));
  };
  const readCoins = async () => parseNumber(await request(provider, "eth_getBalance", [payer, "latest"]));
  return {
    paid: async () => (await call(bill.checks.already_paid)) !== 0n,
    balance: () => (bill.checks.balance.method ? readCoins() : call(bill.checks.balance)),
    allowance: () => call(bill.checks.allowance),
  };
}

/**
 * Returns whether a step is due. The allowance is queried each time, because only the exact amount is approved.
 * @param {Step} step
 * @param {Bill} bill
 * @param {Queries} queries
 */
export async function isDue(step, bill, queries) {
  if (step.when === "always") return true;
  const allowance = await queries.allowance();
  const isShort = allowance < BigInt(bill.amount_smallest_unit);
  return step.when === "allowance_nonzero_lt_amount" ? isShort && allowance !== 0n : isShort;
}

/**
 * Waits until the chain shows the allowance. The buyer may have approved less than the amount.
 * @param {Step} step
 * @param {Bill} bill
 * @param {Queries} queries
 */
export async function isDone(step, bill, queries) {
  for (let attempt = 1; await isDue(step, bill, queries); attempt += 1) {
    if (attempt === ATTEMPTS_MAX) {
      throw new Problem(t("wallet_allow_whole", { amount: bill.price }));
    }
    await pause(attempt);
  }
}

/**
 * Sends a step's transaction and returns its hash. The transaction may still fail.
 * @param {Provider} provider
 * @param {string} payer
 * @param {Step} step
 * @param {Chain} chain
 */
export async function send(provider, payer, { to, value, data }, chain) {
  await switchChain(provider, chain); // the wallet may have switched networks
  const { chainId } = chain.wallet_chain;
  const transaction = { from: payer, to, value, data, chainId };
  const hash = await request(provider, "eth_sendTransaction", [transaction]);
  return String(hash).toLowerCase();
}

/**
 * Waits until a transaction has taken effect, either directly or through a replacement, which has a
 * different hash and which a wallet sends to speed it up. Returns false after a timeout.
 * @param {Provider} provider
 * @param {string} payer
 * @param {string} hash
 * @param {() => Promise<boolean>} hasHappened queries the chain
 */
export async function isEffective(provider, payer, hash, hasHappened) {
  const deadline = Date.now() + PATIENCE_MS;
  let nonce;
  let absences = 0;
  for (let attempt = 1; Date.now() < deadline; attempt += 1) {
    const receipt = await query(provider, "eth_getTransactionReceipt", [hash]);
    if (receipt && parseNumber(receipt.status) === 0n) throw new Lost(t("wallet_refused"));
    if (receipt || (await settle(hasHappened()))) return true;
    nonce ??= (await query(provider, "eth_getTransactionByHash", [hash]))?.nonce;
    const count = nonce && (await query(provider, "eth_getTransactionCount", [payer, "latest"]));
    // A different transaction with this nonce is in a block, unless the node lags behind.
    if (count && parseNumber(count) > parseNumber(nonce)) absences += 1;
    if (absences > ABSENCES_MAX) throw new Lost(t("wallet_replaced"));
    await pause(attempt);
  }
  return false;
}

/**
 * Queries a wallet's node. A node error must not make a transaction look lost.
 * @param {Provider} provider
 * @param {string} method
 * @param {unknown[]} params
 */
function query(provider, method, params) {
  return settle(request(provider, method, params));
}

/**
 * Waits for a wallet's response. Returns null if the call fails or times out.
 * @param {Promise<any>} response
 */
function settle(response) {
  const timeout = new Promise((resolve) => setTimeout(resolve, ANSWER_MS, null));
  const result = response.catch((error) => {
    if (error instanceof WalletError || error instanceof Problem) return null;
    throw error;
  });
  return Promise.race([result, timeout]);
}
