// The checkout's wallet step: pays from a wallet that offer.js has found, and shows the progress.
// The service provides complete calls, and only the service decides whether a payment is paid.
// @ts-check

import { addTexts, call, parse, recall, remember, report, showPage, t } from "./checkout.js";
import { Lost, PATIENCE_MS, Problem, describe } from "./wallet.js";
import { account, isDone, isDue, isEffective, isOn, makeQueries, send, switchChain } from "./wallet.js";

/** @typedef {import("./wallet.js").Provider} Provider */
/** @typedef {import("./wallet.js").Bill} Bill */
/** @typedef {import("./wallet.js").Step} Step */
/** @typedef {import("./wallet.js").Queries} Queries */
/** @typedef {{ hash: string, at: number, mined: boolean }} SentTransaction */

addTexts({/* texts */});

const BUSY_POLL_MS = 2_000; // while a payment is in progress
const IDLE_POLL_MS = 5_000;
const REPORTS_MAX = 3; // for each hash
const GONE = 410;
const AWAY_REASONS = new Set(["chain_halted", "chain_not_watched"]); // the service would not see a payment
const SEEN_STATES = new Set(["detected", "confirming"]); // the service no longer accepts a different method
const LOST_STATES = new Set(["reverted", "foreign"]); // states of a posted transaction that does not pay

const root = /** @type {HTMLElement} */ (document.querySelector("[data-onchain-session]"));
/** @param {string} name @returns {HTMLElement} */
const findPart = (name) => /** @type {HTMLElement} */ (root.querySelector(`[data-${name}]`));
const UNREACHABLE = /** @type {string} */ (findPart("status").dataset.sorry);
const ENDED = t("wallet_ended");
const url = root.dataset.onchainSession ?? "";
const storageKey = `payintent:${url}`;
const openedAt = Date.now();

/** @type {Bill} */
let bill = toBill(JSON.parse(findPart("session").textContent ?? "")); // the last response of the service
/** The undecided transaction that this tab sent. @type {SentTransaction | null} */
let tx = parse(recall(storageKey) ?? "null");
let lostHash = ""; // the hash of a transaction that failed according to the wallet's node; the service may not know yet
let isLost = false; // the buyer reported that it is lost
let isPaying = false;
let isReading = false;
let reports = 0;
let timer = 0;

// Display

/** @param {string} text @param {boolean} [isError] */
function write(text, isError = false) {
  const status = findPart("status");
  status.classList.toggle("problem", isError);
  if (status.textContent !== text) status.textContent = text; // screen readers announce each change
}

function show() {
  const { payable } = bill;
  findPart("offer").hidden = isUnderWay() || !payable;
  findPart("again").hidden = isPaying || !isUnderWay() || !payable || !isSlow();
  for (const button of root.querySelectorAll("button")) button.disabled = isPaying;
  const scan = /** @type {HTMLElement | null} */ (root.querySelector("[data-scan]"));
  if (scan) scan.hidden = isUnderWay() || !payable;
  const methods = /** @type {HTMLElement | null} */ (document.querySelector(".other"));
  if (methods) methods.hidden = SEEN_STATES.has(bill.status);
}

/** Returns whether a payment was sent, from this or a different tab, and is undecided. */
function isUnderWay() {
  if (tx !== null) return true;
  const isOpen = (/** @type {{ tx_hash: string, state: string }} */ { tx_hash, state }) => tx_hash !== lostHash && !LOST_STATES.has(state);
  return bill.status === "submitted" && !isLost && bill.transactions.some(isOpen);
}

function isSlow() {
  return Date.now() - (tx?.at ?? openedAt) > PATIENCE_MS;
}

/** Returns the service's state of the sent transaction; empty if the service does not know it. */
function postedState() {
  return bill.transactions.find(({ tx_hash }) => tx_hash === tx?.hash)?.state ?? "";
}

/** Returns a text that describes the progress; empty if there is none. */
function progress() {
  const { status, chain, confirmations, payable } = bill;
  if (SEEN_STATES.has(status)) {
    return t("wallet_seen", { chain: chain.name, when: delay(confirmations.eta_seconds) });
  }
  if (isUnderWay() && isSlow()) return t("wallet_slow");
  if (tx?.mined || postedState() === "mined") return t("wallet_mined");
  if (isUnderWay()) return t("wallet_sent");
  if (status === "mismatch") return t("wallet_mismatch");
  if (AWAY_REASONS.has(bill.unpayable_reason ?? "")) return t("wallet_chain_away", { chain: chain.name });
  return payable ? "" : t("wallet_choose_other");
}

/** @param {number} seconds */
function delay(seconds) {
  if (seconds < 60) return t("wallet_soon");
  const minutes = Math.round(seconds / 60);
  return minutes === 1 ? t("wallet_soon_minute") : t("wallet_soon_minutes", { minutes });
}

// The payment

/** @param {Provider} provider */
async function start(provider) {
  if (isPaying || isUnderWay()) return;
  isPaying = true;
  show();
  try {
    await pay(provider);
  } catch (error) {
    write(describe(error), true);
  } finally {
    isPaying = false;
    show();
  }
}

/** @param {Provider} provider */
async function pay(provider) {
  await refresh();
  write(t("wallet_answer"));
  const payer = await account(provider);
  const { chain } = bill;
  if (!(await isOn(provider, chain))) write(t("wallet_switch", { chain: chain.name }));
  await switchChain(provider, chain);
  const queries = makeQueries(provider, payer, bill);
  await check(queries);
  for (const step of bill.steps) {
    if (!(await isDue(step, bill, queries))) continue;
    if (step.kind === "pay") await sendPayment(provider, payer, step, queries);
    else await sendApproval(provider, payer, step, queries);
  }
}

/** @param {Queries} queries */
async function check(queries) {
  if (await queries.paid()) {
    throw new Problem(t("wallet_paid_already"));
  }
  if ((await queries.balance()) < BigInt(bill.amount_smallest_unit)) {
    throw new Problem(t("wallet_too_little", { token: bill.token.symbol }));
  }
}

/**
 * @param {Provider} provider
 * @param {string} payer
 * @param {Step} step
 * @param {Queries} queries
 */
async function sendApproval(provider, payer, step, queries) {
  const key = step.kind === "approve_reset" ? "wallet_reset" : "wallet_allow";
  write(t(key, { amount: bill.price }));
  const hash = await send(provider, payer, step, bill.chain);
  write(t("wallet_allowing"));
  const isAllowed = async () => !(await isDue(step, bill, queries));
  if (!(await isEffective(provider, payer, hash, isAllowed))) {
    throw new Problem(t("wallet_allow_slow"));
  }
  await isDone(step, bill, queries);
}

/**
 * @param {Provider} provider
 * @param {string} payer
 * @param {Step} step
 * @param {Queries} queries
 */
async function sendPayment(provider, payer, step, queries) {
  await refresh(); // an approval may have taken some time
  write(t("wallet_confirm", { amount: bill.price }));
  const hash = await send(provider, payer, step, bill.chain);
  const transaction = { hash, at: Date.now(), mined: false };
  track(transaction);
  [isLost, reports] = [false, 0];
  show();
  write(progress());
  await reportHash();
  try {
    const isPaid = async () => SEEN_STATES.has(bill.status) || queries.paid();
    if (await isEffective(provider, payer, hash, isPaid)) track({ ...transaction, mined: true });
  } catch (error) {
    if (error instanceof Lost) {
      lostHash = hash;
      track(null);
    }
    throw error;
  }
  await follow();
}

/** Stores the sent transaction. If storage is blocked, the service still lists it. @param {SentTransaction | null} transaction */
function track(transaction) {
  tx = transaction;
  remember(storageKey, JSON.stringify(tx));
}

// The service

/** Reads the session again. If it has ended, shows the result. */
async function read() {
  const response = await call(url);
  if (!response) throw new Problem(UNREACHABLE);
  if (response.status === GONE) {
    await showPage(true);
    throw new Problem(ENDED);
  }
  const session = response.ok && parse(response.text);
  if (!session) throw new Problem(UNREACHABLE);
  bill = toBill(session);
}

/** @param {any} session @returns {Bill} */
function toBill(session) {
  const link = /** @type {HTMLAnchorElement | null} */ (root.querySelector("[data-metamask]"));
  if (link && session.links.metamask) link.href = session.links.metamask; // the link expires
  return { ...session, price: root.dataset.price };
}

async function refresh() {
  await read();
  if (!bill.payable) throw new Problem(ENDED);
}

/** Reports the transaction's hash to the service, which uses it only as a hint. */
async function reportHash() {
  reports += 1;
  // A lost report is repeated, and the service also finds the transaction on the chain.
  await call(`${url}/transactions`, { tx_hash: tx?.hash, step: "pay" });
}

/** Polls and shows the session while the page is visible. */
async function follow() {
  if (isReading || document.hidden || !root.isConnected) return;
  isReading = true;
  clearTimeout(timer);
  try {
    await read();
    await showProgress();
  } catch (error) {
    if (!(error instanceof Problem)) report(error);
    // The previous state stays visible, and the next poll may succeed.
  }
  isReading = false;
  scheduleRead();
}

/** Shows the session, and schedules the next poll. */
function scheduleRead() {
  show();
  timer = setTimeout(follow, isUnderWay() || !bill.payable ? BUSY_POLL_MS : IDLE_POLL_MS);
}

async function showProgress() {
  if (postedState() === "reverted") { // not "foreign", because some wallets pay through their own contract
    track(null);
    write(t("wallet_refused"), true);
  }
  const text = progress();
  if (text || findPart("status").textContent === UNREACHABLE) write(text);
  if (tx && !postedState() && reports < REPORTS_MAX) await reportHash();
}

findPart("again").addEventListener("click", () => {
  track(null);
  isLost = true;
  write("");
  show();
});
// Phones suspend a page while the wallet is in the foreground.
document.addEventListener("visibilitychange", follow);
addEventListener("pageshow", (event) => event.persisted && follow());
addEventListener("online", follow);
addEventListener("pay:onchain", follow); // the service has seen something
addEventListener("pay:offer", show);
const wallets = /** @type {HTMLElement & { pressed?: Provider, ready?: boolean }} */ (findPart("wallets"));
const startPressed = () => wallets.pressed && start(wallets.pressed);
wallets.addEventListener("click", startPressed); // after offer.js has stored the wallet
startPressed(); // for a click before this script had loaded
wallets.ready = true; // otherwise, offer.js shows an error
showProgress().then(scheduleRead); // the page contains the session
