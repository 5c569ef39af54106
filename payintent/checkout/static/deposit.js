// The checkout's deposit step: hides an address that does not belong to this payment, and shows
// transfers as they arrive. When the session has changed, this script fetches the page again and
// replaces the deposit step, so that all texts come from the service.
// @ts-check

import { call, fetchPage, parse, report, showPage } from "./checkout.js";

const POLL_MS = 15_000; // the stream reports transfers sooner
const GONE = 410;

const root = /** @type {HTMLElement} */ (document.querySelector("[data-deposit]"));
let timer = 0;
let isBusy = false;
let isStale = false; // something has changed while the session was being read
let isRefused = false;

/**
 * @param {Element} step
 * @param {string} name
 */
const findPart = (step, name) => /** @type {HTMLElement} */ (step.querySelector(`[data-${name}]`));

/**
 * Returns whether every address that a step shows, copies and links to belongs to this payment.
 * @param {HTMLElement} step
 */
async function isGenuine(step) {
  const script = await import("./derive.js").catch(() => null);
  if (!script) return true; // the address cannot be checked, as on a page without scripts
  const { uuid = "", factory = "", codeHash = "" } = root.dataset;
  const link = step.querySelector("a")?.getAttribute("href") ?? "";
  const shownAddresses = [...step.querySelectorAll(".address")].map((element) => element.textContent);
  const copiedAddresses = [...step.querySelectorAll(".address + [data-text]")].map((element) => element.getAttribute("data-text"));
  const linkedAddresses = link.match(/address=\w*/g)?.map((match) => match.slice(8)) ?? [];
  const address = script.deriveAddress(uuid, factory, codeHash);
  return [...shownAddresses, ...copiedAddresses, ...linkedAddresses].every((item) => item?.toLowerCase() === address);
}

/** Removes the address until the page is opened again. */
function refuse() {
  isRefused = true;
  findPart(root, "details").remove();
  const status = findPart(root, "status");
  status.className = "problem";
  status.textContent = root.dataset.wrong ?? "";
}

/** @param {HTMLElement} step */
async function check(step) {
  if (!(await isGenuine(step).catch(() => false))) refuse();
}

/** Returns the state in the format of `DepositStep.state`. @param {any} session */
function stateOf({ received, pending, remaining, unpayable_reason, transactions }) {
  const amounts = [received, pending, remaining].map((amount) => amount.amount_smallest_unit);
  return [...amounts, unpayable_reason, transactions.length].join();
}

async function renew() {
  const response = await call(root.dataset.deposit ?? "");
  if (response?.status === GONE) return void (await showPage(true));
  const session = response?.ok && parse(response.text);
  if (!session || stateOf(session) === root.dataset.state) return;
  const page = await fetchPage();
  const next = /** @type {HTMLElement | null} */ (page?.querySelector("[data-deposit]"));
  if (!page || !next) return; // checkout.js shows the result
  await check(next);
  if (!isRefused) replace(next);
  const otherMethods = document.querySelector(".other");
  if (!page.querySelector(".other")) otherMethods?.remove(); // the method can no longer be changed
}

/** @param {HTMLElement} next */
function replace(next) {
  const [oldDetails, newDetails] = [findPart(root, "details"), findPart(next, "details")];
  const hadFocus = oldDetails.contains(document.activeElement);
  const [oldToggle, newToggle] = [oldDetails, newDetails].map((details) => details.querySelector("details"));
  if (newToggle && oldToggle?.open) newToggle.open = true;
  oldDetails.replaceWith(document.adoptNode(newDetails));
  root.dataset.state = next.dataset.state;
  findPart(root, "status").textContent = findPart(next, "status").textContent;
  if (hadFocus) document.getElementById("present")?.focus({ preventScroll: true });
}

async function poll() {
  isStale = isBusy;
  if (isBusy || isRefused || document.hidden || !root.isConnected) return;
  isBusy = true;
  clearTimeout(timer);
  await renew().catch(report);
  isBusy = false;
  timer = setTimeout(poll, isStale ? 0 : POLL_MS);
}

document.addEventListener("visibilitychange", poll);
addEventListener("pageshow", (event) => event.persisted && poll());
addEventListener("online", poll);
addEventListener("pay:onchain", poll); // a transfer has changed
check(root).then(poll);
