// The element's frame, which reads the card number and sends it to the Stripe emulator.

const MESSAGE = "The sandbox’s Stripe emulator is unreachable.";
const form = document.querySelector("form");
const challenge = document.querySelector("#challenge");

async function ask(path, body) {
  try {
    const answer = await fetch(`/element/${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    const said = await answer.json();
    return said.error ? { error: said.error } : { paymentIntent: said };
  } catch {
    return { error: { type: "api_connection_error", message: MESSAGE } };
  }
}

/** Resolves with the value of the button that the buyer presses. */
function answered() {
  form.hidden = true;
  challenge.hidden = false;
  return new Promise((done) => {
    challenge.onclick = ({ target }) => {
      if (!target.value) return;
      [form.hidden, challenge.hidden] = [false, true];
      done(target.value);
    };
  });
}

async function confirm(whose) {
  const number = form.querySelector("input").value.replace(/[\s-]/g, "");
  const result = await ask("confirm", { ...whose, number });
  if (result.paymentIntent?.status !== "requires_action") return result;
  const answer = await answered();
  if (answer === "leave") return ask("leave", whose);
  return ask("authenticate", { ...whose, success: answer });
}

async function list() {
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
  const whose = { key: data.key, client_secret: data.clientSecret };
  port.onmessage = async () => port.postMessage({ kind: "result", result: await confirm(whose) });
  const tell = () => port.postMessage({ kind: "height", height: document.body.scrollHeight + 4 });
  await list();
  new ResizeObserver(tell).observe(document.body);
  port.postMessage({ kind: "ready" });
});
form.addEventListener("submit", (event) => event.preventDefault());
