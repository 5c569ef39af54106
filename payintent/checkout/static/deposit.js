// The checkout's deposit step: hides an address that does not belong to this payment, and shows
// transfers as they arrive. When the session has changed, this script fetches the page again and
// replaces the deposit step, so that all texts come from the service.
// @ts-check

import { fetched, parse, reach, report, swap } from "./checkout.js";

const POLL_MS = 15_000; // the stream reports transfers sooner
const GONE = 410;

const root = /** @type {HTMLElement} */ (document.querySelector("[data-deposit]"));
let timer = 0;
let busy = false;
let due = false; // something has changed while the session was being read
let refused = false;

/**
 * @param {Element} step
 * @param {string} name
 */
const part = (step, name) => /** @type {HTMLElement} */ (step.querySelector(`[data-${name}]`));

/**
 * Returns whether every address that a step shows, copies and links to belongs to this payment.
 * @param {HTMLElement} step
 */
async function isGenuine(step) {
  const script = await import("./derive.js").catch(() => null);
  if (!script) return true; // the address cannot be checked, as on a page without scripts
  const { uuid = "", factory = "", codeHash = "" } = root.dataset;
  const link = step.querySelector("a")?.getAttribute("href") ?? "";
  const shown = [...step.querySelectorAll(".address")].map((one) => one.textContent);
  const copied = [...step.querySelectorAll(".address + [data-text]")].map((one) => one.getAttribute("data-text"));
  const linked = link.match(/address=\w*/g)?.map((one) => one.slice(8)) ?? [];
  const address = script.deriveAddress(uuid, factory, codeHash);
  return [...shown, ...copied, ...linked].every((one) => one?.toLowerCase() === address);
}

/** Removes the address until the page is opened again. */
function refuse() {
  refused = true;
  part(root, "details").remove();
  const status = part(root, "status");
  status.className = "problem";
  status.textContent = root.dataset.wrong ?? "";
}

/** @param {HTMLElement} step */
async function check(step) {
  if (!(await isGenuine(step).catch(() => false))) refuse();
}

/** Returns the state in the format of `DepositStep.state`. @param {any} session */
function stateOf({ received, pending, remaining, unpayable_reason, transactions }) {
  const amounts = [received, pending, remaining].map((one) => one.amount_smallest_unit);
  return [...amounts, unpayable_reason, transactions.length].join();
}

async function renew() {
  const response = await reach(root.dataset.deposit ?? "");
  if (response?.status === GONE) return void (await swap(true));
  const session = response?.ok && parse(response.text);
  if (!session || stateOf(session) === root.dataset.state) return;
  const page = await fetched();
  const next = /** @type {HTMLElement | null} */ (page?.querySelector("[data-deposit]"));
  if (!page || !next) return; // checkout.js shows the result
  await check(next);
  if (!refused) replace(next);
  const other = document.querySelector(".other");
  if (!page.querySelector(".other")) other?.remove(); // the method can no longer be changed
}

/** @param {HTMLElement} next */
function replace(next) {
  const [mine, theirs] = [part(root, "details"), part(next, "details")];
  const hadFocus = mine.contains(document.activeElement);
  const [open, closed] = [mine, theirs].map((one) => one.querySelector("details"));
  if (closed && open?.open) closed.open = true;
  mine.replaceWith(document.adoptNode(theirs));
  root.dataset.state = next.dataset.state;
  part(root, "status").textContent = part(next, "status").textContent;
  if (hadFocus) document.getElementById("present")?.focus({ preventScroll: true });
}

async function look() {
  due = busy;
  if (busy || refused || document.hidden || !root.isConnected) return;
  busy = true;
  clearTimeout(timer);
  await renew().catch(report);
  busy = false;
  timer = setTimeout(look, due ? 0 : POLL_MS);
}

document.addEventListener("visibilitychange", look);
addEventListener("pageshow", (event) => event.persisted && look());
addEventListener("online", look);
addEventListener("pay:onchain", look); // a transfer has changed
check(root).then(look);
