// The checkout's wallet step: pays from a wallet that offer.js has found, and shows the progress.
// The service provides complete calls, and only the service decides whether a payment is paid.
// @ts-check

import { learn, parse, reach, report, swap, word } from "./checkout.js";
import { Lost, PATIENCE_MS, Problem, words } from "./wallet.js";
import { account, isDone, isDue, isEffective, isOn, onto, questions } from "./wallet.js";
import { send } from "./wallet.js";

/** @typedef {import("./wallet.js").Provider} Provider */
/** @typedef {import("./wallet.js").Bill} Bill */
/** @typedef {import("./wallet.js").Step} Step */
/** @typedef {import("./wallet.js").Asked} Asked */
/** @typedef {{ hash: string, at: number, mined: boolean }} Sent */

learn({/* texts */});

const BUSY_POLL_MS = 2_000; // while a payment is in progress
const IDLE_POLL_MS = 5_000;
const TELLS_MAX = 3; // for each hash
const GONE = 410;
const AWAY = new Set(["chain_halted", "chain_not_watched"]); // the service would not see a payment
const SEEN = new Set(["detected", "confirming"]); // the service no longer accepts a different method
const LOST = new Set(["reverted", "foreign"]); // states of a posted transaction that does not pay

const root = /** @type {HTMLElement} */ (document.querySelector("[data-onchain-session]"));
/** @param {string} name @returns {HTMLElement} */
const part = (name) => /** @type {HTMLElement} */ (root.querySelector(`[data-${name}]`));
const UNREACHABLE = /** @type {string} */ (part("status").dataset.sorry);
const ENDED = word("wallet_ended");
const url = root.dataset.onchainSession ?? "";
const memory = `payintent:${url}`;
const opened = Date.now();

/** @type {Bill} */
let bill = take(JSON.parse(part("session").textContent ?? "")); // the last response of the service
let sent = recall(); // the undecided transaction that this tab sent: its hash, time, and whether it is mined
let lost = ""; // the hash of a transaction that failed according to the wallet's node; the service may not know yet
let anew = false; // the buyer reported that it is lost
let running = false;
let asking = false;
let tells = 0;
let timer = 0;

// Display

/** @param {string} text @param {boolean} [bad] */
function say(text, bad = false) {
  const status = part("status");
  status.classList.toggle("problem", bad);
  if (status.textContent !== text) status.textContent = text; // screen readers announce each change
}

function show() {
  const { payable } = bill;
  part("offer").hidden = isUnderWay() || !payable;
  part("again").hidden = running || !isUnderWay() || !payable || !isSlow();
  for (const button of root.querySelectorAll("button")) button.disabled = running;
  const scan = /** @type {HTMLElement | null} */ (root.querySelector("[data-scan]"));
  if (scan) scan.hidden = isUnderWay() || !payable;
  const other = /** @type {HTMLElement | null} */ (document.querySelector(".other"));
  if (other) other.hidden = SEEN.has(bill.status);
}

/** Returns whether a payment was sent, from this or a different tab, and is undecided. */
function isUnderWay() {
  if (sent !== null) return true;
  const open = (/** @type {{ tx_hash: string, state: string }} */ { tx_hash, state }) => tx_hash !== lost && !LOST.has(state);
  return bill.status === "submitted" && !anew && bill.transactions.some(open);
}

function isSlow() {
  return Date.now() - (sent?.at ?? opened) > PATIENCE_MS;
}

/** Returns the service's state of the sent transaction; empty if the service does not know it. */
function posted() {
  return bill.transactions.find(({ tx_hash }) => tx_hash === sent?.hash)?.state ?? "";
}

/** Returns a text that describes the progress; empty if there is none. */
function progress() {
  const { status, chain, confirmations, payable } = bill;
  if (SEEN.has(status)) {
    return word("wallet_seen", { chain: chain.name, when: soon(confirmations.eta_seconds) });
  }
  if (isUnderWay() && isSlow()) return word("wallet_slow");
  if (sent?.mined || posted() === "mined") return word("wallet_mined");
  if (isUnderWay()) return word("wallet_sent");
  if (status === "mismatch") return word("wallet_mismatch");
  if (AWAY.has(bill.unpayable_reason ?? "")) return word("wallet_chain_away", { chain: chain.name });
  return payable ? "" : word("wallet_choose_other");
}

/** @param {number} seconds */
function soon(seconds) {
  if (seconds < 60) return word("wallet_soon");
  const minutes = Math.round(seconds / 60);
  return minutes === 1 ? word("wallet_soon_minute") : word("wallet_soon_minutes", { minutes });
}

// The payment

/** @param {Provider} provider */
async function start(provider) {
  if (running || isUnderWay()) return;
  running = true;
  show();
  try {
    await pay(provider);
  } catch (error) {
    say(words(error), true);
  } finally {
    running = false;
    show();
  }
}

/** @param {Provider} provider */
async function pay(provider) {
  await refresh();
  say(word("wallet_answer"));
  const payer = await account(provider);
  const { chain } = bill;
  if (!(await isOn(provider, chain))) say(word("wallet_switch", { chain: chain.name }));
  await onto(provider, chain);
  const ask = questions(provider, payer, bill);
  await check(ask);
  for (const step of bill.steps) {
    if (!(await isDue(step, bill, ask))) continue;
    if (step.kind === "pay") await sendPayment(provider, payer, step, ask);
    else await sendApproval(provider, payer, step, ask);
  }
}

/** @param {Asked} ask */
async function check(ask) {
  if (await ask.paid()) {
    throw new Problem(word("wallet_paid_already"));
  }
  if ((await ask.balance()) < BigInt(bill.amount_smallest_unit)) {
    throw new Problem(word("wallet_too_little", { token: bill.token.symbol }));
  }
}

/**
 * @param {Provider} provider
 * @param {string} payer
 * @param {Step} step
 * @param {Asked} ask
 */
async function sendApproval(provider, payer, step, ask) {
  const key = step.kind === "approve_reset" ? "wallet_reset" : "wallet_allow";
  say(word(key, { amount: bill.price }));
  const hash = await send(provider, payer, step, bill.chain);
  say(word("wallet_allowing"));
  const isAllowed = async () => !(await isDue(step, bill, ask));
  if (!(await isEffective(provider, payer, hash, isAllowed))) {
    throw new Problem(word("wallet_allow_slow"));
  }
  await isDone(step, bill, ask);
}

/**
 * @param {Provider} provider
 * @param {string} payer
 * @param {Step} step
 * @param {Asked} ask
 */
async function sendPayment(provider, payer, step, ask) {
  await refresh(); // an approval may have taken some time
  say(word("wallet_confirm", { amount: bill.price }));
  const hash = await send(provider, payer, step, bill.chain);
  const transaction = { hash, at: Date.now(), mined: false };
  remember(transaction);
  [anew, tells] = [false, 0];
  show();
  say(progress());
  await tell();
  try {
    const isPaid = async () => SEEN.has(bill.status) || ask.paid();
    if (await isEffective(provider, payer, hash, isPaid)) remember({ ...transaction, mined: true });
  } catch (error) {
    if (error instanceof Lost) {
      lost = hash;
      forget();
    }
    throw error;
  }
  await follow();
}

// The sent transaction is stored, so that it survives a reload of this tab

/** @returns {Sent | null} */
function recall() {
  try {
    return JSON.parse(sessionStorage.getItem(memory) ?? "null");
  } catch {
    return null; // storage is blocked; the service still lists posted transactions
  }
}

/** @param {Sent} transaction */
function remember(transaction) {
  sent = transaction;
  try {
    sessionStorage.setItem(memory, JSON.stringify(sent));
  } catch {}
}

function forget() {
  sent = null;
  try {
    sessionStorage.removeItem(memory);
  } catch {}
}

// The service

/** Reads the session again. If it has ended, shows the result. */
async function read() {
  const answer = await reach(url);
  if (!answer) throw new Problem(UNREACHABLE);
  if (answer.status === GONE) {
    await swap(true);
    throw new Problem(ENDED);
  }
  const session = answer.ok && parse(answer.text);
  if (!session) throw new Problem(UNREACHABLE);
  bill = take(session);
}

/** @param {any} session @returns {Bill} */
function take(session) {
  const link = /** @type {HTMLAnchorElement | null} */ (root.querySelector("[data-metamask]"));
  if (link && session.links.metamask) link.href = session.links.metamask; // the link expires
  return { ...session, price: root.dataset.price };
}

async function refresh() {
  await read();
  if (!bill.payable) throw new Problem(ENDED);
}

/** Reports the transaction's hash to the service, which uses it only as a hint. */
async function tell() {
  tells += 1;
  // A lost report is repeated, and the service also finds the transaction on the chain.
  await reach(`${url}/transactions`, { tx_hash: sent?.hash, step: "pay" });
}

/** Polls and shows the session while the page is visible. */
async function follow() {
  if (asking || document.hidden || !root.isConnected) return;
  asking = true;
  clearTimeout(timer);
  try {
    await read();
    await digest();
  } catch (error) {
    if (!(error instanceof Problem)) report(error);
    // The previous state stays visible, and the next poll may succeed.
  }
  asking = false;
  later();
}

/** Shows the session, and schedules the next poll. */
function later() {
  show();
  timer = setTimeout(follow, isUnderWay() || !bill.payable ? BUSY_POLL_MS : IDLE_POLL_MS);
}

async function digest() {
  if (posted() === "reverted") { // not "foreign", because some wallets pay through their own contract
    forget();
    say(word("wallet_refused"), true);
  }
  const text = progress();
  if (text || part("status").textContent === UNREACHABLE) say(text);
  if (sent && !posted() && tells < TELLS_MAX) await tell();
}

part("again").addEventListener("click", () => {
  forget();
  anew = true;
  say("");
  show();
});
// Phones suspend a page while the wallet is in the foreground.
document.addEventListener("visibilitychange", follow);
addEventListener("pageshow", (event) => event.persisted && follow());
addEventListener("online", follow);
addEventListener("pay:onchain", follow); // the service has seen something
addEventListener("pay:offer", show);
const wallets = /** @type {HTMLElement & { pressed?: Provider, ready?: boolean }} */ (part("wallets"));
const pressed = () => wallets.pressed && start(wallets.pressed);
wallets.addEventListener("click", pressed); // after offer.js has stored the wallet
pressed(); // for a click before this script had loaded
wallets.ready = true; // otherwise, offer.js shows an error
digest().then(later); // the page contains the session
