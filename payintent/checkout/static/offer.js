// Offers the browser's wallets while the rest of the page and its scripts are still on their way:
// this script stands in the page itself. A press is kept until onchain.js has come, which pays;
// where that does not come, the page says so.
// @ts-check

{
  const FIND_MS = 300; // how long wallets have to announce themselves

  /** @type {any} */
  const words = {/* texts */}; // as in checkout.js, which is not there yet
  /** @param {string} name @returns {HTMLElement} */
  const part = (name) => /** @type {HTMLElement} */ (document.querySelector(`[data-${name}]`));
  /** @type {any} */
  const list = part("wallets");
  const known = new Set();
  const offer = part("offer");
  const isAwaited = offer.classList.contains("awaited"); // the service was told of no payment

  /** @param {string} id @param {string} name @param {string} icon @param {any} provider */
  const found = (id, name, icon, provider) => {
    if (known.has(id) || typeof provider?.request !== "function") return;
    known.add(id);
    /** @type {any} */
    const button = document.createElement("button");
    button.type = "button";
    if (/^data:image\//.test(icon)) {
      const image = document.createElement("img");
      image.alt = "";
      button.append(image);
      requestAnimationFrame(() => setTimeout(() => (image.src = icon))); // after the button is there
    }
    button.append(words["wallet_pay_with"].replace("{wallet}", () => name));
    button.provider = provider;
    list.append(button);
    part("no-wallet").hidden = true;
    if (isAwaited) offer.hidden = false; // onchain.js hides it where this tab has paid already
    dispatchEvent(new Event("pay:offer"));
  };

  list.addEventListener("click", (/** @type {any} */ { target }) => {
    list.pressed = target.closest("button")?.provider;
  });
  addEventListener("eip6963:announceProvider", (/** @type {any} */ { detail }) => {
    const { uuid, name, icon } = detail?.info ?? {};
    if (uuid && name) found(uuid, name, icon, detail.provider);
  });
  const old = () => {
    if (known.size === 0) found("window", words["wallet_browser"], "", /** @type {any} */ (globalThis).ethereum);
  };
  addEventListener("ethereum#initialized", old); // some come late, on phones
  onload = () => {
    if (list.ready) return; // else the modules never run
    list.remove();
    part("sorry").append(/** @type {string} */ (part("sorry").dataset.sorry));
  };
  dispatchEvent(new Event("eip6963:requestProvider"));
  setTimeout(() => {
    old();
    part("no-wallet").hidden = known.size > 0;
    offer.classList.remove("awaited"); // no more wallets are waited for
  }, FIND_MS);
}
