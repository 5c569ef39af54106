/** Passkey forms: call WebAuthn when a form is submitted, and send the result with the form. */

const UNEXPECTED_ERROR_TEXT = "Something went wrong. Reload the page, use another browser, or ask for a sign-in link.";
const PASSKEY_ERROR_TEXT = "The passkey did not work on this device. Try again, or ask for a sign-in link.";

/** The service is unreachable or rejected the request, or the browser returned no credential. */
class PasskeyError extends Error {}

/** Create or use a passkey with the options from the service. @param {HTMLFormElement} form */
async function requestCredential(form) {
  const url = form.dataset.options ?? "";
  const response = await fetch(url, { headers: { Accept: "application/json" } }).catch(() => null);
  if (!response) throw new PasskeyError("the service is unreachable");
  if (!response.ok) throw new PasskeyError(`the service returned status ${response.status}`);
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

/** Submit a form with a credential from the browser. @param {HTMLFormElement} form */
async function submitWithPasskey(form) {
  const problem = /** @type {HTMLElement} */ (form.querySelector("[data-problem]"));
  const field = /** @type {HTMLInputElement} */ (form.elements.namedItem("credential"));
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
  problem.hidden = true;
  button.disabled = true;
  try {
    const credential = /** @type {PublicKeyCredential | null} */ (await requestCredential(form));
    if (!credential) throw new PasskeyError("the browser returned no credential");
    field.value = encodeCredential(credential);
    form.submit();
  } catch (error) {
    // The browser reports a failed or cancelled passkey as a DOMException.
    const isUnexpected = !(error instanceof DOMException) && !(error instanceof PasskeyError);
    if (isUnexpected) console.error(error);
    problem.textContent = isUnexpected ? UNEXPECTED_ERROR_TEXT : PASSKEY_ERROR_TEXT;
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
