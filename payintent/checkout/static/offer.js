// Offers the browser's wallets while the rest of the page and its scripts are still loading. This
// script is inline. It stores a click until onchain.js has loaded, which makes the payment. If
// onchain.js does not load, the page shows an error.
// @ts-check

{
  const FIND_MS = 300; // wallets must announce themselves within this time

  /** @type {any} */
  const words = {/* texts */}; // as in checkout.js, which has not loaded yet
  /** @param {string} name @returns {HTMLElement} */
  const findPart = (name) => /** @type {HTMLElement} */ (document.querySelector(`[data-${name}]`));
  findPart("needs-script").remove(); // browsers that do not know the syntax of this script show it
  /** @type {any} */
  const list = findPart("wallets");
  const ids = new Set();
  const offer = findPart("offer");
  const isAwaited = offer.classList.contains("awaited"); // the service does not know of a payment

  /** @param {string} id @param {string} name @param {string} icon @param {any} provider */
  const addWallet = (id, name, icon, provider) => {
    if (ids.has(id) || typeof provider?.request !== "function") return;
    ids.add(id);
    /** @type {any} */
    const button = document.createElement("button");
    button.type = "button";
    if (/^data:image\//.test(icon)) {
      const image = document.createElement("img");
      image.alt = "";
      button.append(image);
      requestAnimationFrame(() => setTimeout(() => (image.src = icon))); // after the button has been painted
    }
    button.append(words["wallet_pay_with"].replace("{wallet}", () => name));
    button.provider = provider;
    list.append(button);
    findPart("no-wallet").hidden = true;
    if (isAwaited) offer.hidden = false; // onchain.js hides it if this tab has already paid
    dispatchEvent(new Event("pay:offer"));
  };

  list.addEventListener("click", (/** @type {any} */ { target }) => {
    list.pressed = target.closest("button")?.provider;
  });
  addEventListener("eip6963:announceProvider", (/** @type {any} */ { detail }) => {
    const { uuid, name, icon } = detail?.info ?? {};
    if (uuid && name) addWallet(uuid, name, icon, detail.provider);
  });
  const offerInjected = () => {
    if (ids.size === 0) addWallet("window", words["wallet_browser"], "", /** @type {any} */ (globalThis).ethereum);
  };
  addEventListener("ethereum#initialized", offerInjected); // on phones, some wallets load late
  onload = () => {
    if (list.ready) return; // otherwise, the modules did not run
    list.remove();
    findPart("sorry").append(/** @type {string} */ (findPart("sorry").dataset.sorry));
  };
  dispatchEvent(new Event("eip6963:requestProvider"));
  setTimeout(() => {
    offerInjected();
    findPart("no-wallet").hidden = ids.size > 0;
    offer.classList.remove("awaited"); // stop waiting for wallets
  }, FIND_MS);
}
