"""An emulator of Stripe: localstripe's server, extended with functions that it lacks.

localstripe has payment intents, payment methods, charges, 3-D Secure, cancellation, refunds, their
lists, and the signed event `payment_intent.succeeded`, which is sent once, after one second.

The emulator adds:

- API keys, each of which can access only its own objects, and `Idempotency-Key`;
- declined cards, because in localstripe a decline ends the intent;
- refunds that are too large, refused or pending;
- the events `payment_intent.payment_failed`, `payment_intent.canceled`, `refund.created`,
  `refund.updated`, `charge.refund.updated` and `refund.failed`, signed and repeated;
- the element in which a buyer pays, in place of Stripe.js.

Only ids are random.

localstripe is licensed under the GPL-3.0. It is not part of the service and is not shipped with it.
Only this process loads it, and all other processes use it over HTTP.
"""
