// The part of the checkout's page that communicates with the shop's page that embeds it. In a frame, methods
// are selected through the API, so that the shop's page can perform actions that require the top page.
// @ts-check

import { LEAVING_MS, addTexts, call, fetchPage, parse, report, showPage, t, warn } from "./checkout.js";
import { findPayment, notify, pageUrl, shop, startLeaving, stopLeaving } from "./checkout.js";

addTexts({/* texts */});

/** Messages for errors, as in `page_fields.py`. @type {Record<string, string>} */
const PROBLEMS = {
  PAYMENT_METHOD_NOT_FOUND: "problem_choose",
  PG_NOT_AVAILABLE: "problem_unavailable",
  PAYMENT_TOKEN_NOT_AVAILABLE: "problem_unavailable",
  UNSUPPORTED_CURRENCY: "problem_unavailable",
  PG_UPSTREAM_ERROR: "problem_upstream",
  INVALID_CHECKOUT_STATE: "problem_detected",
  RATE_LIMITED: "sorry_many",
};
const EMAIL_FIELD = "input[name=payer_email]";

/** @typedef {{ code?: string, message?: string, fds?: object, retryAfter?: string | null }} Refusal */

let isBusy = false;

/** @returns {HTMLFormElement | null} */
const findForm = () => document.querySelector("form.methods");
/** @param {ParentNode | null} form @returns {HTMLInputElement | null | undefined} */
const findEmail = (form) => form?.querySelector(EMAIL_FIELD);

/** @param {MessageEvent} event */
function receive({ origin, source, data }) {
  if (origin !== shop || source !== window.parent) return;
  if (data?.source !== "payintent" || data.nonce !== document.body.dataset.nonce) return;
  if (data.type === "submit") submit();
  if (data.type === "update") update(data);
}

function submit() {
  const form = findForm();
  if (form) form.querySelector("button")?.click(); // Safari 15 has no requestSubmit
  else notify("refused", { code: "INVALID_CHECKOUT_STATE", message: "no method can be selected now" });
}

/** @param {{ locale?: string, country?: string }} changes */
function update(changes) {
  const url = new URL(pageUrl());
  if (changes.locale) url.searchParams.set("lang", changes.locale);
  if (changes.country) url.searchParams.set("country", changes.country);
  if (url.href !== pageUrl()) location.replace(url);
}

/** @param {HTMLFormElement} form */
async function selectMethod(form) {
  if (isBusy) return;
  isBusy = true;
  startLeaving();
  warn("");
  let result;
  try {
    result = await postSelection(readSelection(form));
  } catch (error) {
    result = { code: "WIDGET_FAILED", message: report(error) };
  }
  isBusy = false;
  stopLeaving();
  if (result.next_action) {
    notify("next_action", { action: result.next_action });
    showPage();
  } else {
    notify("refused", result);
    if (result.code === "WIDGET_FAILED") return;
    if (result.fds || (await showPage()) === false || form.isConnected) showRefusal(result);
  }
}

/** @param {object} body */
async function postSelection(body) {
  const response = await call(`${findPayment()?.dataset.url}/quotes`, body, LEAVING_MS);
  const data = response && parse(response.text);
  if (!data) return { code: "NETWORK_OFFLINE", message: "the service cannot be reached" };
  const { status, headers } = response;
  return { ...data, status, requestId: headers.get("X-Request-Id"), retryAfter: headers.get("Retry-After") };
}

/** @param {HTMLFormElement} form */
function readSelection(form) {
  const fields = new FormData(form);
  const [method, currency, total] = String(fields.get("method")).split("|");
  const locale = document.documentElement.lang;
  /** @type {Record<string, unknown>} */
  const body = { payment_method_id: Number(method), currency, expected_total_amount: total, locale };
  for (const name of ["country", "payer_email"]) {
    const value = String(fields.get(name) ?? "").trim();
    if (value) body[name] = value;
  }
  return body;
}

/** @param {Refusal} refusal */
async function showRefusal(refusal) {
  if (refusal.fds) return void showPage(true);
  const key = chooseProblem(refusal);
  if (key === "problem_total" || key === "problem_choose") await refreshForm();
  const email = findEmail(findForm());
  if (key === "problem_email") {
    email?.setAttribute("aria-invalid", "true");
    email?.setAttribute("aria-describedby", "problem");
  } else email?.removeAttribute("aria-invalid");
  warn(t(key));
}

/** @param {Refusal} refusal */
function chooseProblem({ code = "", message, retryAfter }) {
  if (code === "CONFLICT") return retryAfter ? "problem_busy" : "problem_total";
  if (message?.startsWith("payer_email")) return "problem_email";
  return PROBLEMS[code] ?? "problem_other";
}

/** Shows the current methods and totals, and preserves the email address that the buyer entered. */
async function refreshForm() {
  const newForm = (await fetchPage())?.querySelector("form.methods");
  const oldForm = findForm();
  if (!newForm || !oldForm) return;
  findEmail(newForm)?.setAttribute("value", findEmail(oldForm)?.value ?? "");
  oldForm.replaceWith(document.adoptNode(newForm));
}

if (shop) {
  addEventListener("message", receive);
  document.addEventListener("submit", (event) => {
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (!form.matches("form.methods")) return;
    event.preventDefault();
    selectMethod(form);
  });
  document.addEventListener("change", (event) => {
    const input = /** @type {HTMLInputElement} */ (event.target);
    if (input.name === "method") notify("change", { kind: input.dataset.kind });
  });
  new ResizeObserver(() => {
    notify("resize", { height: Math.ceil(document.documentElement.getBoundingClientRect().height) });
  }).observe(document.body);
}

const result = document.querySelector("[data-result]")?.getAttribute("data-result");
notify("ready", { status: result ?? findPayment()?.dataset.status });
