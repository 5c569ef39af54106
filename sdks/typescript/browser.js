// Bundlers for browsers select this file, because an API key must never be in a web page.
throw new Error("payintent-sdk is for servers: anyone who has the API key can refund payments");
export const [Client, webhooks, TestSide, WebhookReceiver] = []; // so that imports resolve and reach the error
