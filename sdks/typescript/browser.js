// A bundler for browsers takes this file: an API key must never be in a page.
throw new Error("payintent-sdk is for servers: whoever has the API key can take money back");
export const [Client, webhooks, TestSide, WebhookReceiver] = []; // so that an import gets as far as the error
