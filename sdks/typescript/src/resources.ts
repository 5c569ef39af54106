/** The client's operations by resource. `list` returns one page, and `iterate` yields the items of all pages. */

import type { Call, KeyedOptions, RequestOptions } from "./calls.js";
import { checkAmount, get, list, toPathSegment, post } from "./calls.js";
import { PaymentDeniedError } from "./errors.js";
import type { EventFeed, FeedEvent, ReplayedEvent } from "./events.js";
import type * as models from "./models.js";
import type { Chain, OnchainSession } from "./onchain.js";
import type * as parameters from "./parameters.js";

/** Sends calls; implemented by the client. */
export interface Sender {
  send<T>(call: Call<T>): Promise<T>;
}

class Resource {
  readonly #sender: Sender;

  constructor(sender: Sender) {
    this.#sender = sender;
  }

  protected send<T>(call: Call<T>): Promise<T> {
    return this.#sender.send(call);
  }
}

type PageOf<T> = (cursor: { cursor?: string }) => Promise<models.Page<T>>;

async function* iteratePages<T>(page: PageOf<T>): AsyncGenerator<T, void, undefined> {
  let cursor: { cursor?: string } = {};
  for (;;) {
    const { data, next_cursor } = await page(cursor);
    yield* data;
    if (next_cursor === undefined) return;
    cursor = { cursor: next_cursor };
  }
}

/** `client.payments`. */
export class Payments extends Resource {
  /**
   * Creates a payment. Redirect the buyer to its `checkout_url`. Throws `PaymentDeniedError` if the
   * fraud rules deny it.
   */
  async create(payment: parameters.CreatePayment, options?: KeyedOptions): Promise<models.CreatedPayment> {
    checkAmount(payment.amount);
    const call = post<models.CreatedPayment | { fds: models.FraudDecision }>("/v1/payments", payment, options);
    const answer = await this.send(call);
    if ("fds" in answer && !("id" in answer)) throw new PaymentDeniedError(answer.fds);
    return answer as models.CreatedPayment;
  }

  /** Returns the current state of a payment. */
  get(paymentId: string, options?: RequestOptions): Promise<models.Payment> {
    return this.send(get<models.Payment>(`/v1/payments/${toPathSegment(paymentId)}`, {}, options));
  }

  /** Returns a page of the merchant's payments, newest first. */
  list(query: parameters.ListPayments = {}, options?: RequestOptions): Promise<models.Page<models.Payment>> {
    return this.send(list<models.Payment>("/v1/payments", query, options));
  }

  iterate(query: parameters.ListPayments = {}, options?: RequestOptions): AsyncGenerator<models.Payment> {
    return iteratePages((cursor) => this.list({ ...query, ...cursor }, options));
  }

  /** Cancels an unpaid payment. Throws `InvalidStateError` if it has already ended. */
  cancel(paymentId: string, options?: KeyedOptions): Promise<models.Cancelled> {
    const path = `/v1/payments/${toPathSegment(paymentId)}/cancel`;
    return this.send(post<models.Cancelled>(path, undefined, options));
  }
}

/** `client.refunds`. */
export class Refunds extends Resource {
  /** Refunds a payment partially, or its full remainder if `amount` is not set. */
  create(
    paymentId: string,
    refund: parameters.CreateRefund = {},
    options?: KeyedOptions,
  ): Promise<models.Refund> {
    checkAmount(refund.amount);
    return this.send(post<models.Refund>(`/v1/payments/${toPathSegment(paymentId)}/refunds`, refund, options));
  }

  /** Returns the current state of a refund. */
  get(refundId: string, options?: RequestOptions): Promise<models.Refund> {
    return this.send(get<models.Refund>(`/v1/refunds/${toPathSegment(refundId)}`, {}, options));
  }

  /** Returns a page of a payment's refunds. */
  list(
    paymentId: string,
    query: parameters.PageParameters = {},
    options?: RequestOptions,
  ): Promise<models.Page<models.Refund>> {
    return this.send(list<models.Refund>(`/v1/payments/${toPathSegment(paymentId)}/refunds`, query, options));
  }

  iterate(
    paymentId: string,
    query: parameters.PageParameters = {},
    options?: RequestOptions,
  ): AsyncGenerator<models.Refund> {
    return iteratePages((cursor) => this.list(paymentId, { ...query, ...cursor }, options));
  }

  /** Returns a page of the refunds of all payments, most recently changed first. */
  listUpdated(
    query: parameters.ListUpdatedRefunds = {},
    options?: RequestOptions,
  ): Promise<models.Page<models.Refund>> {
    return this.send(list<models.Refund>("/v1/refunds", query, options));
  }

  iterateUpdated(
    query: parameters.ListUpdatedRefunds = {},
    options?: RequestOptions,
  ): AsyncGenerator<models.Refund> {
    return iteratePages((cursor) => this.listUpdated({ ...query, ...cursor }, options));
  }
}

/** `client.paymentLinks`. */
export class PaymentLinks extends Resource {
  /** Creates a payment link. Without `amount`, the buyer enters an amount. */
  create(link: parameters.CreatePaymentLink, options?: KeyedOptions): Promise<models.PaymentLink> {
    for (const amount of [link.amount, link.amount_min, link.amount_max]) checkAmount(amount);
    return this.send(post<models.PaymentLink>("/v1/payment-links", link, options));
  }

  /** Returns a payment link with its current status and number of uses. */
  get(linkId: string, options?: RequestOptions): Promise<models.PaymentLink> {
    return this.send(get<models.PaymentLink>(`/v1/payment-links/${toPathSegment(linkId)}`, {}, options));
  }

  /** Returns a page of the merchant's payment links, newest first. */
  list(
    query: parameters.PageParameters = {},
    options?: RequestOptions,
  ): Promise<models.Page<models.PaymentLink>> {
    return this.send(list<models.PaymentLink>("/v1/payment-links", query, options));
  }

  iterate(
    query: parameters.PageParameters = {},
    options?: RequestOptions,
  ): AsyncGenerator<models.PaymentLink> {
    return iteratePages((cursor) => this.list({ ...query, ...cursor }, options));
  }

  /** Deactivates a payment link permanently. Its open payments can still be paid. */
  deactivate(linkId: string, options?: RequestOptions): Promise<models.PaymentLink> {
    const path = `/v1/payment-links/${toPathSegment(linkId)}/deactivate`;
    return this.send(post<models.PaymentLink>(path, undefined, options, false));
  }
}

/** `client.events`: the event feed, for events whose webhooks were missed. */
export class Events extends Resource {
  /** Returns the next events of the feed. */
  list(query: parameters.ListEvents = {}, options?: RequestOptions): Promise<EventFeed> {
    const call = get<EventFeed>("/v1/events", query, options);
    return this.send({ ...call, waitMs: (query.wait ?? 0) * 1_000 });
  }

  /** Yields every event after a cursor, up to the newest. */
  async *iterate(
    query: Omit<parameters.ListEvents, "wait"> = {},
    options?: RequestOptions,
  ): AsyncGenerator<FeedEvent, void, undefined> {
    for (let next = query; ; ) {
      const { data, after, has_more } = await this.list(next, options);
      yield* data;
      if (!has_more) return;
      next = { ...query, after };
    }
  }

  /** Resends the webhook of an event. */
  replay(eventId: string, options?: RequestOptions): Promise<ReplayedEvent> {
    const path = `/v1/events/${toPathSegment(eventId)}/replay`;
    return this.send(post<ReplayedEvent>(path, undefined, options, false));
  }
}

/** `client.cases`: money that needs manual review. */
export class Cases extends Resource {
  list(query: parameters.ListCases = {}, options?: RequestOptions): Promise<models.Page<models.Case>> {
    return this.send(list<models.Case>("/v1/cases", query, options));
  }

  iterate(query: parameters.ListCases = {}, options?: RequestOptions): AsyncGenerator<models.Case> {
    return iteratePages((cursor) => this.list({ ...query, ...cursor }, options));
  }
}

/** `client.disputes`. */
export class Disputes extends Resource {
  list(query: parameters.ListDisputes = {}, options?: RequestOptions): Promise<models.Page<models.Dispute>> {
    return this.send(list<models.Dispute>("/v1/disputes", query, options));
  }

  iterate(query: parameters.ListDisputes = {}, options?: RequestOptions): AsyncGenerator<models.Dispute> {
    return iteratePages((cursor) => this.list({ ...query, ...cursor }, options));
  }
}

/** `client.statements`: the merchant's balances and statements. */
export class Statements extends Resource {
  /** Returns the merchant's current balances. */
  balance(options?: RequestOptions): Promise<models.BalanceList> {
    return this.send(get<models.BalanceList>("/v1/balance", {}, options));
  }

  /** Returns a statement with a page of its lines. */
  get(
    statementId: string,
    query: parameters.PageParameters = {},
    options?: RequestOptions,
  ): Promise<models.StatementWithLines> {
    const path = `/v1/statements/${toPathSegment(statementId)}`;
    return this.send(get<models.StatementWithLines>(path, query, options));
  }

  list(
    query: parameters.ListStatements = {},
    options?: RequestOptions,
  ): Promise<models.Page<models.Statement>> {
    return this.send(list<models.Statement>("/v1/statements", query, options));
  }

  iterate(query: parameters.ListStatements = {}, options?: RequestOptions): AsyncGenerator<models.Statement> {
    return iteratePages((cursor) => this.list({ ...query, ...cursor }, options));
  }
}

/** `client.catalog`. */
export class CatalogOfMerchant extends Resource {
  /** Returns the countries and currencies in which the merchant can be paid. */
  get(options?: RequestOptions): Promise<models.Catalog> {
    return this.send(get<models.Catalog>("/v1/catalog", {}, options));
  }
}

/** `client.onchain`: chains, and payments on them. */
export class Onchain extends Resource {
  /** Returns a chain, its payment contract, its deposit factory and its tokens. */
  getChain(slug: string, options?: RequestOptions): Promise<Chain> {
    return this.send(get<Chain>(`/v1/chains/${toPathSegment(slug)}`, {}, options));
  }

  /**
   * Returns an on-chain session. Verify a deposit address before you use it. Throws an `ApiError` with the code
   * `SESSION_GONE` if the session has ended.
   */
  getSession(sessionId: string, options?: RequestOptions): Promise<OnchainSession> {
    return this.send(get<OnchainSession>(`/v1/onchain/sessions/${toPathSegment(sessionId)}`, {}, options));
  }
}

/** `client.testClock`. Requires a test key. */
export class ClockOfTests extends Resource {
  /** Returns how far the clock has been advanced in total. */
  get(options?: RequestOptions): Promise<models.TestClock> {
    return this.send(get<models.TestClock>("/v1/test/clock", {}, options));
  }

  /** Advances the clock by `seconds`. Work that becomes due runs shortly afterwards. */
  advance(seconds: number, options?: RequestOptions): Promise<models.AdvancedTestClock> {
    return this.send(post<models.AdvancedTestClock>("/v1/test/clock/advance", { seconds }, options, false));
  }
}

/** `client.testPayments`: actions of buyers and banks. Requires a test key. */
export class TestPayments extends Resource {
  /** Pays with a test card, which determines the outcome. */
  pay(paymentId: string, body: parameters.PayTestPayment = {}, options?: KeyedOptions): Promise<models.Payment> {
    return this.#act(paymentId, "pay", body, options);
  }

  /** Declines the buyer's card. */
  decline(
    paymentId: string,
    body: parameters.DeclineTestPayment = {},
    options?: KeyedOptions,
  ): Promise<models.Payment> {
    return this.#act(paymentId, "decline", body, options);
  }

  /** Disputes the payment as the buyer's bank: `open`, then `won` or `lost`. */
  dispute(
    paymentId: string,
    body: parameters.DisputeTestPayment = {},
    options?: KeyedOptions,
  ): Promise<models.Payment> {
    return this.#act(paymentId, "dispute", body, options);
  }

  /** Sends tokens to the payment's test address: by default, the remaining amount. */
  transfer(
    paymentId: string,
    body: parameters.TransferToTestPayment = {},
    options?: KeyedOptions,
  ): Promise<models.Payment> {
    return this.#act(paymentId, "transfer", body, options);
  }

  #act(paymentId: string, action: string, body: object, options?: KeyedOptions): Promise<models.Payment> {
    return this.send(post<models.Payment>(`/v1/test/payments/${toPathSegment(paymentId)}/${action}`, body, options));
  }
}
