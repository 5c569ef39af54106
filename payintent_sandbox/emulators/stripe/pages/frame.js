// The element's frame, which reads the card number and sends it to the Stripe emulator.

const MESSAGE = "The sandbox’s Stripe emulator is unreachable.";
const form = document.querySelector("form");
const challenge = document.querySelector("#challenge");

async function ask(path, body) {
  try {
    const response = await fetch(`/element/${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    const data = await response.json();
    return data.error ? { error: data.error } : { paymentIntent: data };
  } catch {
    return { error: { type: "api_connection_error", message: MESSAGE } };
  }
}

/** Resolves with the value of the button that the buyer presses. */
function waitForChoice() {
  form.hidden = true;
  challenge.hidden = false;
  return new Promise((resolve) => {
    challenge.onclick = ({ target }) => {
      if (!target.value) return;
      [form.hidden, challenge.hidden] = [false, true];
      resolve(target.value);
    };
  });
}

async function confirm(credentials) {
  const number = form.querySelector("input").value.replace(/[\s-]/g, "");
  const result = await ask("confirm", { ...credentials, number });
  if (result.paymentIntent?.status !== "requires_action") return result;
  const choice = await waitForChoice();
  if (choice === "leave") return ask("leave", credentials);
  return ask("authenticate", { ...credentials, success: choice });
}

async function listCards() {
  const { data } = await (await fetch("/element/cards")).json();
  const items = data.map(({ number, label }) => {
    const item = document.createElement("li");
    item.textContent = `${number} ${label}`;
    return item;
  });
  document.querySelector("ul").replaceChildren(...items);
}

addEventListener("message", async ({ data, ports: [port] }) => {
  if (!port) return; // not from the element
  const credentials = { key: data.key, client_secret: data.clientSecret };
  port.onmessage = async () => port.postMessage({ kind: "result", result: await confirm(credentials) });
  const sendHeight = () => port.postMessage({ kind: "height", height: document.body.scrollHeight + 4 });
  await listCards();
  new ResizeObserver(sendHeight).observe(document.body);
  port.postMessage({ kind: "ready" });
});
form.addEventListener("submit", (event) => event.preventDefault());
