// The emulator's replacement for Stripe.js: the part that the checkout uses, with its own frame.

(() => {
  const ORIGIN = new URL(document.currentScript.src).origin;
  const MESSAGE = "The sandbox’s Stripe emulator is unreachable.";
  const UNREACHABLE = { type: "api_connection_error", message: MESSAGE };

  /** Mounts a frame from ORIGIN. Only the frame sees the card; a message channel connects the two. */
  class PaymentElement {
    constructor(key, { clientSecret, locale, appearance }) {
      const { port1, port2 } = new MessageChannel();
      this.port = port1;
      this.listeners = {};
      this.pending = null;
      this.frame = document.createElement("iframe");
      this.frame.src = `${ORIGIN}/element/frame`;
      this.frame.title = "Secure payment input frame";
      this.frame.lang = locale ?? "";
      this.frame.dataset.theme = appearance?.theme ?? "stripe";
      Object.assign(this.frame.style, { border: "0", width: "100%", height: "14rem" });
      this.frame.addEventListener("load", () => {
        this.frame.contentWindow.postMessage({ key, clientSecret }, ORIGIN, [port2]);
      });
      port1.onmessage = ({ data }) => this.hear(data);
    }

    mount(target) {
      const container = typeof target === "string" ? document.querySelector(target) : target;
      container.replaceChildren(this.frame);
      return this;
    }

    on(kind, listener) {
      this.listeners[kind] = listener;
      return this;
    }

    hear({ kind, result, height }) {
      if (kind === "ready") this.listeners.ready?.({ elementType: "payment" });
      if (kind === "height") this.frame.style.height = `${height}px`;
      if (kind === "result") this.pending?.(result);
    }

    confirm() {
      return new Promise((resolve) => {
        this.pending = resolve;
        this.port.postMessage({ kind: "confirm" });
      });
    }
  }

  async function retrieveIntent(key, clientSecret) {
    const query = new URLSearchParams({ key, client_secret: clientSecret });
    try {
      const response = await fetch(`${ORIGIN}/element/intent?${query}`);
      const data = await response.json();
      return data.error ? { error: data.error } : { paymentIntent: data };
    } catch {
      return { error: UNREACHABLE };
    }
  }

  window.Stripe = (key) => ({
    elements: (options) => ({
      create(kind) {
        if (kind !== "payment") throw new Error("the sandbox has only the payment element");
        this.payment = new PaymentElement(key, options);
        return this.payment;
      },
    }),
    async confirmPayment({ elements, redirect, confirmParams }) {
      const result = await elements.payment.confirm();
      if (result.paymentIntent && redirect !== "if_required") {
        location.assign(confirmParams.return_url);
      }
      return result;
    },
    retrievePaymentIntent: (clientSecret) => retrieveIntent(key, clientSecret),
  });
})();
