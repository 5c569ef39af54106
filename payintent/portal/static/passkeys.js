/** Passkeys: a form's button asks the browser for one, and the form carries its answer. */

const BROKEN = "Something went wrong. Reload the page, use another browser, or ask for a sign-in link.";
const FAILED = "The passkey did not work on this device. Try again, or ask for a sign-in link.";

/** No passkey came of it. */
class Refused extends Error {}

/** Ask the browser to make or use a passkey. @param {HTMLFormElement} form */
async function ask(form) {
  const url = form.dataset.options ?? "";
  const answer = await fetch(url, { headers: { Accept: "application/json" } }).catch(() => null);
  if (!answer) throw new Refused("the service cannot be reached");
  if (!answer.ok) throw new Refused(`${answer.status}`);
  const publicKey = withBytes(await answer.json());
  if (form.dataset.passkey === "create") return navigator.credentials.create({ publicKey });
  return navigator.credentials.get({ publicKey });
}

// Browsers before 2023 have no parseCreationOptionsFromJSON and no toJSON (WebAuthn Level 3, 5.1.8).

/** Decode the binary fields of options. @param {any} options */
function withBytes({ challenge, user, allowCredentials = [], excludeCredentials = [], ...options }) {
  const known = (/** @type {any[]} */ list) => list.map(({ id, ...one }) => ({ ...one, id: bytes(id) }));
  return {
    ...options,
    challenge: bytes(challenge),
    ...(user && { user: { ...user, id: bytes(user.id) } }),
    allowCredentials: known(allowCredentials),
    excludeCredentials: known(excludeCredentials),
  };
}

/** @param {string} text in base64url */
function bytes(text) {
  const characters = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(characters, (one) => one.charCodeAt(0));
}

/** @param {ArrayBuffer | null | undefined} buffer */
function text(buffer) {
  if (!buffer) return undefined;
  const characters = String.fromCharCode(...new Uint8Array(buffer));
  return btoa(characters).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
}

/** Encode what the browser gave. @param {any} credential */
function encoded(credential) {
  const { rawId, type, response } = credential;
  const { clientDataJSON, attestationObject, authenticatorData, signature, userHandle } = response;
  return JSON.stringify({
    id: text(rawId),
    rawId: text(rawId),
    type,
    clientExtensionResults: credential.getClientExtensionResults(),
    response: {
      clientDataJSON: text(clientDataJSON),
      attestationObject: text(attestationObject),
      authenticatorData: text(authenticatorData),
      signature: text(signature),
      userHandle: text(userHandle),
    },
  });
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
    if (!credential) throw new Refused("none");
    field.value = encoded(credential);
    form.submit();
  } catch (error) {
    // The browser's refusals are exceptions of the DOM; the service's are errors of `ask`
    const isOurs = !(error instanceof DOMException) && !(error instanceof Refused);
    if (isOurs) console.error(error);
    problem.textContent = isOurs ? BROKEN : FAILED;
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
