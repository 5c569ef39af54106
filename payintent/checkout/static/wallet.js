// Talks to a browser's wallets: EIP-1193 calls, and their errors in words.
// @ts-check

import { learn, word } from "./checkout.js";

/** @typedef {import("../sdk/v1").Eip1193Provider} Provider */
/** @typedef {import("../sdk/v1").OnchainSession & { price: string }} Bill */
/** @typedef {import("../sdk/v1").OnchainStep} Step */
/** @typedef {import("../sdk/v1").OnchainCheck} Check */
/** @typedef {Bill["chain"]} Chain */
/** @typedef {ReturnType<typeof questions>} Asked */

learn({/* texts */});

const PAUSE_MAX_MS = 1_000;
const PAUSE_FIRST_MS = 100;
const ALLOWANCE_LOOKS_MAX = 6; // a wallet's node may lag behind the one that gave a receipt
/** A transaction that is in no block after so long is slow, or lost. */
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

/** A failure in words that a buyer can read. */
export class Problem extends Error {}
/** A transaction that is in a block and did nothing. */
export class Reverted extends Problem {}

/**
 * Waits before one looks again, each time twice as long up to a second.
 * @param {number} looks
 */
function pause(looks) {
  const ms = Math.min(PAUSE_FIRST_MS * 2 ** (looks - 1), PAUSE_MAX_MS);
  return new Promise((done) => setTimeout(done, ms));
}

/**
 * Gives any error in words.
 * @param {any} error
 */
export function words(error) {
  if (error instanceof Problem) return error.message;
  const known = KEYS[codeOf(error)];
  if (known) return word(known);
  const message = String(error?.message);
  if (/insufficient funds/i.test(message)) {
    return word("wallet_too_little_fee");
  }
  if (/user (rejected|denied|cancell?ed)/i.test(message)) return word("wallet_declined");
  return word("wallet_could_not");
}

/**
 * Gives an error's code, also where a wallet has wrapped it.
 * @param {any} error
 */
function codeOf(error) {
  return error?.data?.originalError?.code ?? error?.code;
}

/**
 * Gives the account that the buyer lets this page use.
 * @param {Provider} provider
 */
export async function account(provider) {
  const accounts = await provider.request({ method: "eth_requestAccounts" });
  if (accounts?.[0]) return accounts[0];
  throw new Problem(word("wallet_no_account"));
}

/**
 * Brings the wallet onto the chain, adding it where it is not known.
 * @param {Provider} provider
 * @param {Chain} chain
 */
export async function onto(provider, chain) {
  if (await isOn(provider, chain)) return;
  try {
    await switchTo(provider, chain);
  } catch (error) {
    if (codeOf(error) !== UNKNOWN_CHAIN) throw error;
    await add(provider, chain);
  }
  // A wallet may say yes and stay where it was.
  if (!(await isOn(provider, chain))) throw wrongChain(chain);
}

/**
 * @param {Provider} provider
 * @param {Chain} chain
 */
export async function isOn(provider, chain) {
  const here = await provider.request({ method: "eth_chainId" });
  return BigInt(here) === BigInt(chain.network_id);
}

/**
 * @param {Provider} provider
 * @param {Chain} chain
 */
async function switchTo(provider, chain) {
  const { chainId } = chain.wallet_chain;
  try {
    await provider.request({ method: "wallet_switchEthereumChain", params: [{ chainId }] });
  } catch (error) {
    throw codeOf(error) === REJECTED ? wrongChain(chain) : error;
  }
}

/**
 * @param {Provider} provider
 * @param {Chain} chain
 */
async function add(provider, chain) {
  const urls = /** @type {string[] | undefined} */ (chain.wallet_chain.rpcUrls);
  if (!urls?.length) {
    throw new Problem(word("wallet_unknown_chain", { chain: chain.name }));
  }
  await provider.request({ method: "wallet_addEthereumChain", params: [chain.wallet_chain] });
  if (!(await isOn(provider, chain))) await switchTo(provider, chain); // adding need not switch
}

/** @param {Chain} chain */
function wrongChain({ name }) {
  return new Problem(word("wallet_wrong_chain", { chain: name }));
}

/**
 * Gives the questions that a bill brings along; `{payer}` is the only thing that is put in.
 * @param {Provider} provider
 * @param {string} payer
 * @param {Bill} bill
 */
export function questions(provider, payer, bill) {
  const digits = payer.slice(2).toLowerCase();
  /** @param {Check} [check] */
  const call = async ({ to, data = "" } = {}) => {
    const params = [{ to, data: data.replace("{payer}", digits) }, "latest"];
    const answer = await provider.request({ method: "eth_call", params });
    if (/^0x[0-9a-f]+$/i.test(answer)) return BigInt(answer);
    throw new Problem(word("wallet_other_chain", { chain: bill.chain.name }));
  };
  const coins = async () =>
    BigInt(await provider.request({ method: "eth_getBalance", params: [payer, "latest"] }));
  return {
    paid: async () => (await call(bill.checks.already_paid)) !== 0n,
    balance: () => (bill.checks.balance.method ? coins() : call(bill.checks.balance)),
    allowance: () => call(bill.checks.allowance),
  };
}

/**
 * Tells whether a step is due: what is allowed is asked each time, and never allowed in stock.
 * @param {Step} step
 * @param {Bill} bill
 * @param {Asked} ask
 */
export async function isDue(step, bill, ask) {
  if (step.when === "always") return true;
  const allowed = await ask.allowance();
  const short = allowed < BigInt(bill.amount_smallest_unit);
  return step.when === "allowance_nonzero_lt_amount" ? short && allowed !== 0n : short;
}

/**
 * Waits until the chain knows what was allowed; a buyer may have allowed less than was asked.
 * @param {Step} step
 * @param {Bill} bill
 * @param {Asked} ask
 */
export async function isDone(step, bill, ask) {
  for (let look = 1; await isDue(step, bill, ask); look += 1) {
    if (look === ALLOWANCE_LOOKS_MAX) {
      throw new Problem(word("wallet_allow_whole", { amount: bill.price }));
    }
    await pause(look);
  }
}

/**
 * Sends a step and gives its hash, which says nothing of what becomes of it.
 * @param {Provider} provider
 * @param {string} payer
 * @param {Step} step
 * @param {Chain} chain
 */
export async function send(provider, payer, { to, value, data }, chain) {
  await onto(provider, chain); // it may have been switched since
  const { chainId } = chain.wallet_chain;
  const asked = { from: payer, to, value, data, chainId };
  const hash = await provider.request({ method: "eth_sendTransaction", params: [asked] });
  return String(hash).toLowerCase();
}

/**
 * Waits until a transaction is in a block: false where that takes too long, `Reverted`.
 * @param {Provider} provider
 * @param {string} hash
 */
export async function isMined(provider, hash) {
  const until = Date.now() + PATIENCE_MS;
  for (let look = 1; Date.now() < until; look += 1) {
    const receipt = await receiptOf(provider, hash);
    if (receipt && BigInt(receipt.status) === 0n) throw new Reverted(word("wallet_refused"));
    if (receipt) return true;
    await pause(look);
  }
  return false;
}

/**
 * A node that stumbles must not make a transaction look lost.
 * @param {Provider} provider
 * @param {string} hash
 */
async function receiptOf(provider, hash) {
  try {
    return await provider.request({ method: "eth_getTransactionReceipt", params: [hash] });
  } catch {
    return null;
  }
}
