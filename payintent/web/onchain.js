// The checkout's wallet step: offers the browser's wallets, pays from one, shows what comes of it.
// The service gives every call ready to send, and it alone says when a payment is paid.

import { PATIENCE_MS, Problem, REFUSED, Reverted, words } from "./wallet.js";
import { account, discover, isDone, isDue, isMined, isOn, onto, questions } from "./wallet.js";
import { send } from "./wallet.js";

const BUSY_POLL_MS = 2_000; // while a payment is on its way
const IDLE_POLL_MS = 5_000;
const FETCH_TIMEOUT_MS = 15_000;
const TELLS_MAX = 3; // of one hash
const GONE = 410;
const LOST = new Set(["reverted", "foreign"]); // states of a posted transaction that pays nothing
const UNREACHABLE = "We cannot be reached just now. Please try again in a moment.";
const ENDED = "A payment can no longer be started here.";

const root = document.querySelector("[data-onchain-session]");
const url = root.dataset.onchainSession;
const memory = `payintent:${url}`;
const opened = Date.now();

let bill = null; // the session as the service saw it last
let sent = recall(); // what this tab has sent and nobody has decided: its hash, when, whether mined
let anew = false; // the buyer says that it is lost
let running = false;
let asking = false;
let tells = 0;
let timer = 0;

const part = (name) => root.querySelector(`[data-${name}]`);

// What the page shows

function say(text, bad = false) {
  const status = part("status");
  status.classList.toggle("problem", bad);
  if (status.textContent !== text) status.textContent = text; // each change is read aloud
}

function show() {
  const payable = bill?.payable === true;
  part("offer").hidden = isUnderWay() || !payable;
  part("again").hidden = running || !isUnderWay() || !payable || !isSlow();
  for (const button of root.querySelectorAll("button")) button.disabled = running;
}

/** Tells whether a payment was sent, from here or another tab, and is not decided. */
function isUnderWay() {
  return sent !== null || (bill?.status === "submitted" && !anew);
}

function isSlow() {
  return Date.now() - (sent?.at ?? opened) > PATIENCE_MS;
}

function posted() {
  return bill.transactions.find((one) => one.tx_hash === sent?.hash);
}

/** Says what the service knows; nothing where that is nothing new. */
function progress() {
  const { status, chain, confirmations, payable } = bill;
  if (status === "detected" || status === "confirming") {
    const when = soon(confirmations.eta_seconds);
    return `Seen on ${chain.name}. It counts as paid when it is final, ${when}.`;
  }
  if (sent?.mined || posted()?.state === "mined") return "Your payment is on the chain.";
  if (isUnderWay() && isSlow()) {
    return (
      "The chain is slow. What you sent is not lost: it is shown here once it is seen. " +
      "If your wallet says that it failed or was cancelled, pay again: it is never taken twice."
    );
  }
  if (isUnderWay()) return "Your payment was sent. It is not on the chain yet.";
  if (status === "mismatch") {
    return "What arrived is not exactly this amount of this token. A person will look at it.";
  }
  return payable ? "" : `${ENDED} Please choose another way to pay.`;
}

function soon(seconds) {
  if (seconds < 60) return "in less than a minute";
  const minutes = Math.round(seconds / 60);
  return minutes === 1 ? "in about a minute" : `in about ${minutes} minutes`;
}

function offer(name, icon, provider) {
  const button = document.createElement("button");
  button.type = "button";
  if (/^data:image\//.test(icon ?? "")) {
    const image = document.createElement("img");
    [image.src, image.alt] = [icon, ""];
    button.append(image);
  }
  button.append(`Pay with ${name}`);
  button.addEventListener("click", () => start(provider));
  part("wallets").append(button);
  part("no-wallet").hidden = true;
  show();
}

// The payment

async function start(provider) {
  if (running) return;
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

async function pay(provider) {
  await refresh();
  say("Please answer in your wallet.");
  const payer = await account(provider);
  const { chain } = bill;
  if (!(await isOn(provider, chain))) say(`Please let your wallet switch to ${chain.name}.`);
  await onto(provider, chain);
  const ask = questions(provider, payer, bill);
  await check(ask);
  for (const step of bill.steps) {
    if (!(await isDue(step, bill, ask))) continue;
    if (step.kind === "pay") await sendPayment(provider, payer, step);
    else await sendApproval(provider, payer, step, ask);
  }
}

async function check(ask) {
  if (await ask.paid()) {
    throw new Problem("This was paid already. It is shown here as soon as it is final.");
  }
  if ((await ask.balance()) < BigInt(bill.amount_smallest_unit)) {
    throw new Problem(`This account has too little ${bill.token.symbol}. Please use another one.`);
  }
}

async function sendApproval(provider, payer, step, ask) {
  const amount = `${bill.amount} ${bill.token.symbol}`;
  say(
    step.kind === "approve_reset"
      ? "An older permission has to end first. Please confirm that in your wallet."
      : `Please allow exactly ${amount} in your wallet. The payment follows.`,
  );
  const hash = await send(provider, payer, step, bill.chain);
  say("Waiting until the chain knows of the permission.");
  if (!(await isMined(provider, hash))) {
    throw new Problem("The chain is slow. Please try again later; what you allowed is not lost.");
  }
  await isDone(step, bill, ask);
}

async function sendPayment(provider, payer, step) {
  await refresh(); // a permission may have taken its time
  say(`Please confirm the payment of ${bill.amount} ${bill.token.symbol} in your wallet.`);
  const hash = await send(provider, payer, step, bill.chain);
  remember({ hash, at: Date.now(), mined: false });
  [anew, tells] = [false, 0];
  show();
  say(progress());
  await tell();
  try {
    if (await isMined(provider, hash)) remember({ ...sent, hash, mined: true });
  } catch (error) {
    if (error instanceof Reverted) forget();
    throw error;
  }
  await follow();
}

// What was sent outlives a reload of this tab

function recall() {
  try {
    return JSON.parse(sessionStorage.getItem(memory));
  } catch {
    return null; // storage is denied; the service still lists what was posted
  }
}

function remember(what) {
  sent = what;
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

/** Reads the session anew; where it has ended, the page shows how. */
async function read() {
  let answer;
  try {
    answer = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(FETCH_TIMEOUT_MS) });
  } catch {
    throw new Problem(UNREACHABLE);
  }
  if (answer.status === GONE) {
    location.replace(root.dataset.page);
    throw new Problem(ENDED);
  }
  if (!answer.ok) throw new Problem(UNREACHABLE);
  bill = await answer.json();
}

async function refresh() {
  await read();
  if (!bill.payable) throw new Problem(ENDED);
}

/** Names the transaction to look for: a hint, which the service does not believe. */
async function tell() {
  tells += 1;
  try {
    await fetch(`${url}/transactions`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ tx_hash: sent.hash, step: "pay" }),
      signal: AbortSignal.timeout(FETCH_TIMEOUT_MS),
    });
  } catch {
    // It is told again, and found on the chain all the same.
  }
}

/** Shows what the service sees, again and again while somebody looks. */
async function follow() {
  if (asking || document.hidden) return;
  asking = true;
  clearTimeout(timer);
  try {
    await read();
    await digest();
  } catch (error) {
    if (bill === null) say(words(error), true);
  }
  asking = false;
  show();
  timer = setTimeout(follow, isUnderWay() || !bill?.payable ? BUSY_POLL_MS : IDLE_POLL_MS);
}

async function digest() {
  if (LOST.has(posted()?.state)) {
    forget();
    say(REFUSED, true);
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
// A phone lets a page sleep while its wallet is in front.
document.addEventListener("visibilitychange", follow);
addEventListener("pageshow", follow);
addEventListener("online", follow);
discover(offer, (any) => {
  part("no-wallet").hidden = any;
});
follow();
