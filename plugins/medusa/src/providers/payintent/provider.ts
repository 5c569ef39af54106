/** The payment provider. A cart is paid only if the service reports that its payment is paid. */

import type * as types from "@medusajs/framework/types";
import { AbstractPaymentProvider, MedusaError } from "@medusajs/framework/utils";
import { Client, InvalidStateError, webhooks } from "payintent-sdk";
import type { Payment } from "payintent-sdk";

import { isSame, priceOf, total } from "./amounts";
import type { Price } from "./amounts";
import { keyOf } from "./names";
import { refundOnce } from "./refunds";
import { pagesOf, readSession, sessionOf, textOf } from "./session";
import type { Pages, Session } from "./session";
import { endedUnpaid, sessionStatus, webhookAction } from "./statuses";

export interface PayintentOptions {
  /** The URL of the service, such as `https://pay.example.com`. */
  baseUrl: string;
  /** The merchant's API key: first `sk_test_…`, later `sk_live_…`. */
  apiKey: string;
  /** The callback secret (`whsec_…`). During a rotation, both secrets, separated by a space. */
  secrets: string;
}

export class PayintentProvider extends AbstractPaymentProvider<PayintentOptions> {
  static override identifier = "payintent";
  readonly #client: Client;
  readonly #secrets: string[];
  readonly #logger: types.Logger;

  static override validateOptions(options: Record<string, unknown>): void {
    for (const name of ["baseUrl", "apiKey", "secrets"]) {
      if (typeof options[name] !== "string" || !options[name]) throw new Error(`payintent: the ${name} option is missing`);
    }
  }

  constructor(cradle: Record<string, unknown>, options: PayintentOptions) {
    super(cradle, options);
    this.#client = new Client({ apiKey: options.apiKey, baseUrl: options.baseUrl });
    this.#secrets = options.secrets.split(/\s+/).filter(Boolean);
    this.#logger = cradle["logger"] as types.Logger;
  }

  /** Creates the payment of a session. A second call for the session returns the same payment. */
  async initiatePayment(input: types.InitiatePaymentInput): Promise<types.InitiatePaymentOutput> {
    const price = priceOf(input.amount, input.currency_code);
    return this.#create(textOf(input.data, "session_id"), price, pagesOf(input.data), input.context);
  }

  /** Replaces the payment if the amount has changed, or if the payment has ended unpaid without an event. */
  async updatePayment(input: types.UpdatePaymentInput): Promise<types.UpdatePaymentOutput> {
    const session = readSession(input.data);
    const price = priceOf(input.amount, input.currency_code);
    if (isSame(session, price)) {
      const { status } = await this.#client.payments.get(session.id);
      if (!endedUnpaid(status)) return { data: { ...session } };
    } else {
      await this.#end(session.id);
    }
    return this.#create(session.session_id, price, pagesOf(input.data), input.context, session.id);
  }

  /** Allows a cart to become an order if the service reports that the session's amount is paid. */
  async authorizePayment({ data }: types.AuthorizePaymentInput): Promise<types.AuthorizePaymentOutput> {
    const session = readSession(data);
    const payment = await this.#client.payments.get(session.id);
    return { data: { ...session }, status: this.#pays(payment, session) ? sessionStatus(payment.status) : "error" };
  }

  async getPaymentStatus({ data }: types.GetPaymentStatusInput): Promise<types.GetPaymentStatusOutput> {
    const session = readSession(data);
    const { status } = await this.#client.payments.get(session.id);
    return { data: { ...session }, status: sessionStatus(status) };
  }

  /** Checks that the payment is paid. A paid payment is already captured. */
  async capturePayment(input: types.CapturePaymentInput): Promise<types.CapturePaymentOutput> {
    const { data, status } = await this.authorizePayment(input);
    if (status !== "captured") throw notAllowed(`${String(data?.["id"])} is not paid`);
    return data ? { data } : {};
  }

  async retrievePayment({ data }: types.RetrievePaymentInput): Promise<types.RetrievePaymentOutput> {
    return { data: { ...(await this.#client.payments.get(readSession(data).id)) } };
  }

  async cancelPayment({ data }: types.CancelPaymentInput): Promise<types.CancelPaymentOutput> {
    const session = readSession(data);
    await this.#end(session.id);
    return { data: { ...session } };
  }

  /** Ends the payment of a session that Medusa deletes. Throws an error if the payment is paid or in progress. */
  async deletePayment({ data }: types.DeletePaymentInput): Promise<types.DeletePaymentOutput> {
    // If a session could not be stored, Medusa passes the storefront's data, which does not contain a payment.
    if (data?.["session_id"] === undefined) return {};
    return this.cancelPayment({ data });
  }

  async refundPayment({ amount, data, context }: types.RefundPaymentInput): Promise<types.RefundPaymentOutput> {
    const session = readSession(data);
    const price = priceOf(amount, session.currency);
    await refundOnce(this.#client, session, price.amount, context?.idempotency_key ?? "");
    return { data: { ...session, refunded: total(session.refunded, price.amount) } };
  }

  /** Returns the action for a webhook, based on the current payment at the service. Throws `WebhookError` if the webhook is invalid. */
  async getWebhookActionAndData(
    webhook: types.ProviderWebhookPayload["payload"],
  ): Promise<types.WebhookActionResult> {
    const headers = webhook.headers as Record<string, string | string[] | undefined>;
    const event = await webhooks.verify(webhook.rawData, headers, this.#secrets);
    if (!/^payment\.(completed|failed|expired|cancelled)$/.test(event.type)) return { action: "not_supported" };
    const eventPayment = event.data.payment;
    const payment = await this.#client.payments.get(eventPayment.id);
    const sessionId = payment.metadata["session_id"];
    if (typeof sessionId !== "string") return { action: "not_supported" }; // the payment was not created by this plugin
    if (!isSame(eventPayment, payment)) {
      this.#logger.error(`payintent: the amount in a webhook differs from the amount of ${payment.id}`);
      return { action: "not_supported" };
    }
    return { action: webhookAction(payment.status), data: { session_id: sessionId, amount: payment.amount } };
  }

  async #create(
    sessionId: string,
    price: Price,
    pages: Pages,
    context: types.PaymentProviderContext | undefined,
    previousId = "",
  ): Promise<types.InitiatePaymentOutput> {
    const customer = context?.customer?.id;
    const payer = customer ? `customer-${customer}` : `guest-${sessionId}`;
    const payment = await this.#client.payments.create(
      {
        ...price,
        ...pages,
        payer_uid: payer,
        metadata: { session_id: sessionId },
      },
      // `previousId` distinguishes the attempts of a session. The payer is included because a guest can sign in.
      { idempotencyKey: keyOf(sessionId, price.amount, price.currency, previousId, payer) },
    );
    return { id: payment.id, status: "pending", data: sessionOf(payment, sessionId, price, pages) };
  }

  /** Returns whether a payment belongs to the session, has its amount, and has no refunds. */
  #pays(payment: Payment, session: Session): boolean {
    const isWhole = isSame(payment, session) && isSame({ ...payment, amount: payment.refunded_amount }, { ...payment, amount: "0" });
    const pays = isWhole && payment.metadata["session_id"] === session.session_id;
    if (!pays) this.#logger.error(`payintent: ${payment.id} does not match ${session.session_id}, or was refunded`);
    return pays;
  }

  async #end(paymentId: string): Promise<void> {
    try {
      await this.#client.payments.cancel(paymentId);
    } catch (error) {
      if (!(error instanceof InvalidStateError)) throw error;
      const { status } = await this.#client.payments.get(paymentId);
      if (!endedUnpaid(status)) throw notAllowed(`${paymentId} is ${status}, so its cart cannot be changed`);
    }
  }
}

function notAllowed(text: string): MedusaError {
  return new MedusaError(MedusaError.Types.NOT_ALLOWED, text);
}
