/**
 * Reads the payments of open sessions every few minutes, because a webhook can be lost. A paid payment is handled like
 * its webhook.
 */

import type { MedusaContainer } from "@medusajs/framework/types";
import { ContainerRegistrationKeys, Modules } from "@medusajs/framework/utils";
import { Client } from "payintent-sdk";

import type { PayintentOptions } from "../providers/payintent";

const PROVIDER = "payintent-medusa/providers/payintent";
const PROCESS_PAYMENT = "process-payment-workflow"; // Medusa's workflow, which locks the cart
const SESSIONS_MAX = 100;
const AGE_MS = 2 * 24 * 3600 * 1000; // a payment ends within a day, except on a slow chain

interface OpenSession {
  id: string;
  provider_id: string;
  data: Record<string, unknown>;
}

interface Provider {
  resolve?: unknown;
  id?: string;
  options?: unknown;
}

export default async function poll(container: MedusaContainer): Promise<void> {
  const clients = openClients(container);
  const logger = container.resolve(ContainerRegistrationKeys.LOGGER);
  for (const session of await findOpenSessions(container)) {
    const client = clients.get(session.provider_id);
    if (!client) continue;
    try {
      await settle(container, client, session);
    } catch (error) {
      // The service did not return the payment, or Medusa cannot place the order. The next poll tries again.
      logger.error(`payintent: ${session.id} cannot be processed: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}

export const config = { name: "payintent-poll", schedule: "*/5 * * * *" };

/** Returns a client for each provider of this plugin, by the provider id of Medusa's sessions. */
function openClients(container: MedusaContainer): Map<string, Client> {
  const { modules } = container.resolve(ContainerRegistrationKeys.CONFIG_MODULE);
  const payment = modules?.[Modules.PAYMENT] as { options?: { providers?: Provider[] } } | undefined;
  const payintentProviders = (payment?.options?.providers ?? []).filter((provider) => provider.resolve === PROVIDER);
  return new Map(
    payintentProviders.map(({ id, options }) => {
      const { apiKey, baseUrl } = options as PayintentOptions;
      return [`pp_payintent${id ? `_${id}` : ""}`, new Client({ apiKey, baseUrl })];
    }),
  );
}

async function findOpenSessions(container: MedusaContainer): Promise<OpenSession[]> {
  const { data } = await container.resolve(ContainerRegistrationKeys.QUERY).graph({
    entity: "payment_session",
    fields: ["id", "provider_id", "data"],
    filters: { status: "pending", created_at: { $gt: new Date(Date.now() - AGE_MS) } },
    pagination: { take: SESSIONS_MAX, order: { created_at: "DESC" } },
  });
  return data as OpenSession[];
}

async function settle(container: MedusaContainer, client: Client, session: OpenSession): Promise<void> {
  const paymentId = session.data["id"];
  if (typeof paymentId !== "string") return;
  const { status, amount, metadata } = await client.payments.get(paymentId);
  if (status !== "PAID" || metadata["session_id"] !== session.id) return;
  const input = { action: "captured", data: { session_id: session.id, amount } };
  await container.resolve(Modules.WORKFLOW_ENGINE).run(PROCESS_PAYMENT, { input });
}
