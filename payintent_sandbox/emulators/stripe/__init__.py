"""A Stripe for the sandbox: localstripe's server, and around it what localstripe leaves out.

Of localstripe are payment intents, payment methods, charges, 3-D Secure, cancellation, refunds and
their lists, and the signed `payment_intent.succeeded`, a second after the fact and never repeated.

Ours are: which keys there are and what each may see; `Idempotency-Key`; declined cards, for
localstripe's intents do not survive a decline, and Stripe's do; refunds that are too large,
refused or pending; the events `payment_intent.payment_failed`, `payment_intent.canceled`,
`refund.created`, `refund.updated`, `charge.refund.updated` and `refund.failed`, signed and
repeated; and the element with which a buyer pays, in place of Stripe.js. Nothing of ours is random
but ids.

localstripe is licensed under the GPL-3.0. It is no part of the service and is not shipped with it:
it is loaded in this process alone, which everything else knows by its wire.
"""
