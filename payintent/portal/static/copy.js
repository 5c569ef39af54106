/** Add a button that copies the value to each secret and link. */

const COPIED_MS = 2000;

/** @param {HTMLElement} code */
function addCopyButton(code) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent ?? "");
    } catch {
      return void getSelection()?.selectAllChildren(code); // the browser refused; users can copy the selection
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), COPIED_MS);
  });
  code.after(button);
}

// The clipboard is only available on secure pages.
if (navigator.clipboard) {
  for (const code of document.querySelectorAll(".secrets code")) {
    if (code instanceof HTMLElement) addCopyButton(code);
  }
}
