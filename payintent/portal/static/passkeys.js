/** Passkeys: a form's button asks the browser for one, and the form carries its answer. */

const FAILED = "The passkey did not work on this device. Try again, or ask for a link.";

/** Ask the browser to make or use a passkey. @param {HTMLFormElement} form */
async function ask(form) {
  const answer = await fetch(form.dataset.options ?? "", { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`${answer.status}`);
  const options = await answer.json();
  if (form.dataset.passkey === "create") {
    const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options);
    return navigator.credentials.create({ publicKey });
  }
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
  return navigator.credentials.get({ publicKey });
}

/** Send a form with what the browser gave. @param {HTMLFormElement} form */
async function send(form) {
  const problem = /** @type {HTMLElement} */ (form.querySelector("[data-problem]"));
  const field = /** @type {HTMLInputElement} */ (form.elements.namedItem("credential"));
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
  problem.hidden = true;
  button.disabled = true;
  try {
    const credential = /** @type {PublicKeyCredential | null} */ (await ask(form));
    if (!credential) throw new Error("none");
    field.value = JSON.stringify(credential.toJSON());
    form.submit();
  } catch {
    problem.textContent = FAILED;
    problem.hidden = false;
    button.disabled = false;
  }
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void send(/** @type {HTMLFormElement} */ (form));
  });
}
