// Pays with the browser SDK: one function for each way to open the checkout.
// The result in the browser is for display; only the webhook changes the order.

const sdk = PayIntent();
const form = document.querySelector("[data-way]");
const status = document.querySelector("[role=status]");
let order = null;

/** Creates a payment on our server, which sets the price; the API key stays there. */
async function create() {
  const response = await fetch("/buy.json", { method: "POST", body: new FormData(form) });
  if (!response.ok) throw new Error((await response.json()).message);
  order = await response.json();
  return order;
}

const showOrder = () => location.assign(`/orders/${order.order_id}`);

const ways = {
  async redirect() {
    await sdk.redirectToCheckout(await create());
  },

  async popup() {
    await sdk.openPopup({ createCheckout: create }); // call it first: windows open only in a click
    showOrder();
  },

  async widget() {
    const { checkoutUrl } = await create();
    const widget = sdk.widget({ checkoutUrl });
    widget.on("result", showOrder);
    widget.on("error", showError);
    await widget.mount("#pay");
  },

  async deferred() {
    await deferred.submit();
    showOrder();
  },
};

/** Shows the error, and a retry button only if a retry may help. */
function showError(error) {
  const { message, code, retryable } = error;
  status.textContent = `${message}${code ? ` (${code})` : ""}${retryable ? " Please try again." : ""}`;
}

async function start() {
  status.textContent = "";
  try {
    await ways[form.dataset.way]();
  } catch (error) {
    showError(error);
  }
}

const { way, amount, currency } = form.dataset;
const deferred = way === "deferred" ? sdk.widget({ createCheckout: create }) : null;
if (deferred) {
  await deferred.setAmount({ amount, currency });
  await deferred.mount("#pay");
}
form.addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
if (way === "widget") start();
