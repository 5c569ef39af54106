/** Passkey forms: call WebAuthn when a form is submitted, and send the result with the form. */

const UNEXPECTED_ERROR_TEXT = "Something went wrong. Reload the page, use another browser, or ask for a sign-in link.";
const PASSKEY_ERROR_TEXT = "The passkey did not work on this device. Try again, or ask for a sign-in link.";
const SERVICE_ERROR_TEXT = "The service is unavailable, or this page is too old. Reload the page and try again.";

/** An error with a message for the member. */
class PasskeyError extends Error {}

/** Create or use a passkey with the options from the service. @param {HTMLFormElement} form */
async function requestCredential(form) {
  const url = form.dataset.options ?? "";
  const response = await fetch(url, { headers: { Accept: "application/json" } }).catch(() => null);
  if (!response?.ok) throw new PasskeyError(SERVICE_ERROR_TEXT);
  const publicKey = decodeOptions(await response.json());
  if (form.dataset.passkey === "create") return navigator.credentials.create({ publicKey });
  return navigator.credentials.get({ publicKey });
}

// Browsers released before 2023 lack parseCreationOptionsFromJSON and toJSON (WebAuthn Level 3, 5.1.8).

/** Decode the binary fields of WebAuthn options. @param {any} options */
function decodeOptions({ challenge, user, allowCredentials = [], excludeCredentials = [], ...options }) {
  const decodeIds = (/** @type {any[]} */ credentials) =>
    credentials.map(({ id, ...fields }) => ({ ...fields, id: decodeBase64url(id) }));
  return {
    ...options,
    challenge: decodeBase64url(challenge),
    ...(user && { user: { ...user, id: decodeBase64url(user.id) } }),
    allowCredentials: decodeIds(allowCredentials),
    excludeCredentials: decodeIds(excludeCredentials),
  };
}

/** @param {string} text */
function decodeBase64url(text) {
  const characters = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(characters, (character) => character.charCodeAt(0));
}

/** @param {ArrayBuffer | null | undefined} buffer */
function encodeBase64url(buffer) {
  if (!buffer) return undefined;
  const characters = String.fromCharCode(...new Uint8Array(buffer));
  return btoa(characters).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
}

/** Return the credential as JSON. @param {any} credential */
function encodeCredential(credential) {
  const { rawId, type, response } = credential;
  const { clientDataJSON, attestationObject, authenticatorData, signature, userHandle } = response;
  return JSON.stringify({
    id: encodeBase64url(rawId),
    rawId: encodeBase64url(rawId),
    type,
    clientExtensionResults: credential.getClientExtensionResults(),
    response: {
      clientDataJSON: encodeBase64url(clientDataJSON),
      attestationObject: encodeBase64url(attestationObject),
      authenticatorData: encodeBase64url(authenticatorData),
      signature: encodeBase64url(signature),
      userHandle: encodeBase64url(userHandle),
    },
  });
}

/** Return the message for an error. @param {unknown} error */
function describeError(error) {
  if (error instanceof PasskeyError) return error.message;
  if (error instanceof DOMException) return PASSKEY_ERROR_TEXT; // a failed or cancelled passkey
  console.error(error);
  return UNEXPECTED_ERROR_TEXT;
}

/** Submit a form with a credential from the browser. @param {HTMLFormElement} form */
async function submitWithPasskey(form) {
  const problem = /** @type {HTMLElement} */ (form.querySelector("[data-problem]"));
  const field = /** @type {HTMLInputElement} */ (form.elements.namedItem("credential"));
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
  problem.hidden = true;
  button.disabled = true;
  try {
    const credential = /** @type {PublicKeyCredential | null} */ (await requestCredential(form));
    if (!credential) throw new PasskeyError(PASSKEY_ERROR_TEXT);
    field.value = encodeCredential(credential);
    form.submit();
  } catch (error) {
    problem.textContent = describeError(error);
    problem.hidden = false;
    button.disabled = false;
  }
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void submitWithPasskey(/** @type {HTMLFormElement} */ (form));
  });
}
