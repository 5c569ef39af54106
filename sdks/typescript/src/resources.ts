/** What a client can do, by what it is done to. `list` gives one page, `iterate` all items of all pages. */

import type { Call, KeyedOptions, RequestOptions } from "./calls.js";
import { checkAmount, get, list, part, post } from "./calls.js";
import { PaymentDeniedError } from "./errors.js";
import type { EventFeed, FeedEvent, ReplayedEvent } from "./events.js";
import type * as models from "./models.js";
import type * as parameters from "./parameters.js";

/** What sends a call: the client. */
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

async function* eachOf<T>(page: PageOf<T>): AsyncGenerator<T, void, undefined> {
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
   * Creates a payment; send the buyer to its `checkout_url`. Throws `PaymentDeniedError` where the
   * fraud rules deny it.
   */
  async create(payment: parameters.CreatePayment, options?: KeyedOptions): Promise<models.CreatedPayment> {
    checkAmount(payment.amount);
    const call = post<models.CreatedPayment | { fds: models.FraudDecision }>("/v1/payments", payment, options);
    const answer = await this.send(call);
    if ("fds" in answer && !("id" in answer)) throw new PaymentDeniedError(answer.fds);
    return answer as models.CreatedPayment;
  }

  /** Gives a payment as it is now. */
  get(paymentId: string, options?: RequestOptions): Promise<models.Payment> {
    return this.send(get<models.Payment>(`/v1/payments/${part(paymentId)}`, {}, options));
  }

  /** Gives one page of the merchant's payments, newest first. */
  list(wanted: parameters.ListPayments = {}, options?: RequestOptions): Promise<models.Page<models.Payment>> {
    return this.send(list<models.Payment>("/v1/payments", wanted, options));
  }

  iterate(wanted: parameters.ListPayments = {}, options?: RequestOptions): AsyncGenerator<models.Payment> {
    return eachOf((cursor) => this.list({ ...wanted, ...cursor }, options));
  }

  /** Cancels a payment that is not paid; `InvalidStateError` where it has ended otherwise. */
  cancel(paymentId: string, options?: KeyedOptions): Promise<models.Cancelled> {
    const path = `/v1/payments/${part(paymentId)}/cancel`;
    return this.send(post<models.Cancelled>(path, undefined, options));
  }
}

/** `client.refunds`. */
export class Refunds extends Resource {
  /** Refunds a part of a payment, or all that is left of it where no `amount` is given. */
  create(
    paymentId: string,
    refund: parameters.CreateRefund = {},
    options?: KeyedOptions,
  ): Promise<models.Refund> {
    checkAmount(refund.amount);
    return this.send(post<models.Refund>(`/v1/payments/${part(paymentId)}/refunds`, refund, options));
  }

  /** Gives a refund as it is now. */
  get(refundId: string, options?: RequestOptions): Promise<models.Refund> {
    return this.send(get<models.Refund>(`/v1/refunds/${part(refundId)}`, {}, options));
  }

  /** Gives one page of a payment's refunds. */
  list(
    paymentId: string,
    wanted: parameters.PageParameters = {},
    options?: RequestOptions,
  ): Promise<models.Page<models.Refund>> {
    return this.send(list<models.Refund>(`/v1/payments/${part(paymentId)}/refunds`, wanted, options));
  }

  iterate(
    paymentId: string,
    wanted: parameters.PageParameters = {},
    options?: RequestOptions,
  ): AsyncGenerator<models.Refund> {
    return eachOf((cursor) => this.list(paymentId, { ...wanted, ...cursor }, options));
  }

  /** Gives one page of the refunds of all payments, by their last change. */
  listUpdated(
    wanted: parameters.ListUpdatedRefunds = {},
    options?: RequestOptions,
  ): Promise<models.Page<models.Refund>> {
    return this.send(list<models.Refund>("/v1/refunds", wanted, options));
  }

  iterateUpdated(
    wanted: parameters.ListUpdatedRefunds = {},
    options?: RequestOptions,
  ): AsyncGenerator<models.Refund> {
    return eachOf((cursor) => this.listUpdated({ ...wanted, ...cursor }, options));
  }
}

/** `client.events`: the feed that heals what webhooks missed. */
export class Events extends Resource {
  /** Gives the next events of the feed. */
  list(wanted: parameters.ListEvents = {}, options?: RequestOptions): Promise<EventFeed> {
    const call = get<EventFeed>("/v1/events", wanted, options);
    return this.send({ ...call, waitMs: (wanted.wait ?? 0) * 1_000 });
  }

  /** Gives every event after a place in the feed, up to the newest. */
  async *iterate(
    wanted: Omit<parameters.ListEvents, "wait"> = {},
    options?: RequestOptions,
  ): AsyncGenerator<FeedEvent, void, undefined> {
    for (let next = wanted; ; ) {
      const { data, after, has_more } = await this.list(next, options);
      yield* data;
      if (!has_more) return;
      next = { ...wanted, after };
    }
  }

  /** Has the webhook of an event sent again. */
  replay(eventId: string, options?: RequestOptions): Promise<ReplayedEvent> {
    const path = `/v1/events/${part(eventId)}/replay`;
    return this.send(post<ReplayedEvent>(path, undefined, options, false));
  }
}

/** `client.cases`: money that a person looks at. */
export class Cases extends Resource {
  list(wanted: parameters.ListCases = {}, options?: RequestOptions): Promise<models.Page<models.Case>> {
    return this.send(list<models.Case>("/v1/cases", wanted, options));
  }

  iterate(wanted: parameters.ListCases = {}, options?: RequestOptions): AsyncGenerator<models.Case> {
    return eachOf((cursor) => this.list({ ...wanted, ...cursor }, options));
  }
}

/** `client.disputes`. */
export class Disputes extends Resource {
  list(wanted: parameters.ListDisputes = {}, options?: RequestOptions): Promise<models.Page<models.Dispute>> {
    return this.send(list<models.Dispute>("/v1/disputes", wanted, options));
  }

  iterate(wanted: parameters.ListDisputes = {}, options?: RequestOptions): AsyncGenerator<models.Dispute> {
    return eachOf((cursor) => this.list({ ...wanted, ...cursor }, options));
  }
}

/** `client.statements`: what the merchant is owed, and its closed days. */
export class Statements extends Resource {
  /** Gives what the merchant is owed now. */
  balance(options?: RequestOptions): Promise<models.BalanceList> {
    return this.send(get<models.BalanceList>("/v1/balance", {}, options));
  }

  /** Gives a statement, and one page of its lines. */
  get(
    statementId: string,
    wanted: parameters.PageParameters = {},
    options?: RequestOptions,
  ): Promise<models.StatementWithLines> {
    const path = `/v1/statements/${part(statementId)}`;
    return this.send(get<models.StatementWithLines>(path, wanted, options));
  }

  list(
    wanted: parameters.ListStatements = {},
    options?: RequestOptions,
  ): Promise<models.Page<models.Statement>> {
    return this.send(list<models.Statement>("/v1/statements", wanted, options));
  }

  iterate(wanted: parameters.ListStatements = {}, options?: RequestOptions): AsyncGenerator<models.Statement> {
    return eachOf((cursor) => this.list({ ...wanted, ...cursor }, options));
  }
}

/** `client.catalog`. */
export class CatalogOfMerchant extends Resource {
  /** Gives where and in which currencies the merchant can be paid. */
  get(options?: RequestOptions): Promise<models.Catalog> {
    return this.send(get<models.Catalog>("/v1/catalog", {}, options));
  }
}

/** `client.testClock`: by a test key alone. */
export class ClockOfTests extends Resource {
  /** Gives how far the clock was advanced. */
  get(options?: RequestOptions): Promise<models.TestClock> {
    return this.send(get<models.TestClock>("/v1/test/clock", {}, options));
  }

  /** Makes due what waits for so many seconds. */
  advance(seconds: number, options?: RequestOptions): Promise<models.AdvancedTestClock> {
    return this.send(post<models.AdvancedTestClock>("/v1/test/clock/advance", { seconds }, options, false));
  }
}

/** `client.testPayments`: what buyers and their banks do; by a test key alone. */
export class TestPayments extends Resource {
  /** Has the buyer pay with a test card, which decides what happens. */
  pay(paymentId: string, wanted: parameters.PayTestPayment = {}, options?: KeyedOptions): Promise<models.Payment> {
    return this.#act(paymentId, "pay", wanted, options);
  }

  /** Has the buyer's card declined. */
  decline(
    paymentId: string,
    wanted: parameters.DeclineTestPayment = {},
    options?: KeyedOptions,
  ): Promise<models.Payment> {
    return this.#act(paymentId, "decline", wanted, options);
  }

  /** Has the buyer's bank dispute: `open`, then `won` or `lost`. */
  dispute(
    paymentId: string,
    wanted: parameters.DisputeTestPayment = {},
    options?: KeyedOptions,
  ): Promise<models.Payment> {
    return this.#act(paymentId, "dispute", wanted, options);
  }

  #act(paymentId: string, action: string, wanted: object, options?: KeyedOptions): Promise<models.Payment> {
    return this.send(post<models.Payment>(`/v1/test/payments/${part(paymentId)}/${action}`, wanted, options));
  }
}
