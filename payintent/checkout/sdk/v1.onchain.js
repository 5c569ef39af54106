// The wallet script of the browser SDK, which v1.js loads when a wallet call is first used.
// The service provides complete calls, and only the chain determines their results.
// @ts-check
(() => {
  "use strict";

  /** @typedef {import("./v1").Eip1193Provider} Provider */
  /** @typedef {import("./v1").Onchain} Onchain */
  /** @typedef {import("./v1").DepositSession} DepositSession */

  // The service and the package build insert the checkout page's script here.
  const { deriveAddress } = /** @type {typeof import("../static/derive.js")} */ ({/* derive.js */});

  const SESSION_ID = /^sess_[0-9A-Za-z]{22}$/;
  const REJECTED = 4001;
  const FIND_MS = 300; // wallets must announce themselves within this time
  const MINED_MS = 180_000;
  const LOOK_MS = 1_000;
  const ANSWER_MS = 10_000;
  const LOOKS = 6; // a wallet's node may lag behind the node that returned a receipt
  const BALANCE_OF = "0x70a08231";
  const TRANSFER = "0xa9059cbb";

  /** Encodes a number or an address as 32 bytes. @param {bigint | string} value */
  const encodeWord = (value) => BigInt(value).toString(16).padStart(64, "0");

  /** @type {import("./v1").WalletPart} */
  function wallets({ fail, need, sleep, request, read, halt, chains }) {
    /** Calls a wallet, and converts its errors. @param {Provider} provider @param {string} method @param {unknown[]} params @param {string} code */
    async function ask(provider, method, params, code) {
      try {
        return await provider.request({ method, params });
      } catch (/** @type {any} */ cause) {
        const message = String(cause?.message ?? cause); // a wallet may throw a text
        const codes = [cause?.code, cause?.data?.originalError?.code];
        const isRejection = codes.some((value) => value === REJECTED || value === "ACTION_REJECTED");
        if (/insufficient funds/i.test(message)) code = "INSUFFICIENT_FUNDS";
        if (isRejection || /user (rejected|denied|cancell?ed)/i.test(message)) code = "USER_REJECTED";
        return fail(code, message, { cause });
      }
    }

    /** @type {Onchain["discover"]} */
    async function discover({ timeoutMs: patience = FIND_MS } = {}) {
      const wallets = new Map();
      /** @param {any} event */
      const addWallet = ({ detail }) => wallets.set(detail.info.uuid, { ...detail.info, provider: detail.provider });
      addEventListener("eip6963:announceProvider", addWallet);
      dispatchEvent(new Event("eip6963:requestProvider"));
      await sleep(patience);
      removeEventListener("eip6963:announceProvider", addWallet);
      const provider = /** @type {any} */ (window).ethereum;
      if (!wallets.size && provider) return [{ uuid: "window", name: "Browser wallet", provider }];
      return [...wallets.values()];
    }

    /** @type {Onchain["connect"]} */
    async function connect(provider) {
      const code = "WALLET_INIT_FAILED";
      if (!provider?.request) fail(code);
      const [address] = (await ask(provider, "eth_requestAccounts", [], code)) ?? [];
      if (!address) fail(code);
      return { address, chainId: +(await ask(provider, "eth_chainId", [], code)) };
    }

    /** @type {Onchain["session"]} */
    async function session(id) {
      if (!SESSION_ID.test(need(id, "sessionId"))) fail("INVALID_FORMAT");
      const bill = await read(`/onchain/sessions/${id}`, "pay_uuid");
      if (!bill.steps) verify(bill);
      return bill;
    }

    /** Rejects a deposit session whose address cannot be derived from a stored chain. @param {DepositSession} bill */
    function verify({ pay_uuid, deposit_address, receiver, chain, token, remaining, links }) {
      const storedChains = need(chains, "chains");
      let isGenuine = false;
      try {
        const { network_id } = chain;
        const [address, receiverAddress] = [deposit_address.toLowerCase(), receiver.toLowerCase()];
        const amount = remaining.amount_smallest_unit;
        const link = `ethereum:${token.address}@${network_id}/transfer?address=${address}&uint256=${amount}`;
        const factories = storedChains.map((storedChain) => storedChain.network_id === network_id && storedChain.deposits);
        isGenuine =
          [undefined, link.toLowerCase()].includes(links.eip681?.toLowerCase()) &&
          factories.some(
            (deposits) =>
              deposits &&
              deposits.receiver.toLowerCase() === receiverAddress &&
              deriveAddress(pay_uuid, deposits.factory_address, deposits.init_code_hash) === address,
          );
      } catch {
        // A field is missing or malformed.
      }
      if (!isGenuine) fail("INVALID_RESPONSE", "the deposit address does not belong to a stored chain");
    }

    /** @type {Onchain["ensureChain"]} */
    async function ensureChain(provider, { network_id, wallet_chain }) {
      const code = "WRONG_CHAIN";
      // A wallet may not know the chain, or may add the chain without switching to it.
      for (const verb of ["switch", "add", "switch", ""]) {
        if (+(await ask(provider, "eth_chainId", [], code)) === network_id) return;
        const params = verb === "add" ? wallet_chain : { chainId: wallet_chain.chainId };
        if (!verb) fail(code);
        try {
          await ask(provider, `wallet_${verb}EthereumChain`, [params], code);
        } catch (/** @type {any} */ error) {
          if (error.code !== code) throw error;
        }
      }
    }

    /** @type {Record<string, ReturnType<Onchain["pay"]> | undefined>} */
    const payments = {}; // a second click must not pay twice

    /** @type {Onchain["pay"]} */
    const pay = async (options) => {
      const { id } = need(options.session, "session");
      const send = "steps" in options.session ? payOnce : deposit;
      return (payments[id] ??= send(/** @type {any} */ (options)).finally(() => delete payments[id]));
    };

    /** Reads a number through a wallet, such as a balance. @param {Provider} provider @param {unknown[]} params */
    async function readNumber(provider, params, method = "eth_call") {
      const result = await ask(provider, method, [...params, "latest"], "ONCHAIN_TX_FAILED");
      return /^0x./.test(result) ? BigInt(result) : fail("WRONG_CHAIN"); // the contract does not exist on this chain
    }

    /**
     * Waits until a transaction is mined or has taken effect. Returns its hash, or null if a different transaction had the effect.
     * @param {Provider} provider @param {string} payer @param {string} txHash
     * @param {() => Promise<boolean>} hasHappened @param {AbortSignal} [signal]
     */
    async function follow(provider, payer, txHash, hasHappened, signal) {
      const code = "ONCHAIN_TX_FAILED";
      // A node error must not make a transaction look lost, and a node that does not respond must not block the loop.
      /** @param {Promise<any>} response */
      const settle = (response) => Promise.race([response.catch(() => 0), sleep(ANSWER_MS)]);
      /** @param {string} kind @param {unknown[]} params */
      const query = (kind, params) => settle(ask(provider, `eth_getTransaction${kind}`, params, code));
      let nonce;
      let replacements = 0;
      for (const deadline = Date.now() + MINED_MS; Date.now() < deadline; await sleep(LOOK_MS)) {
        halt(signal);
        const receipt = await query("Receipt", [txHash]);
        if (+receipt?.status === 0) fail(code);
        if (receipt) break;
        // A wallet may replace the transaction to speed it up or to cancel it.
        const isEffective = await settle(hasHappened());
        const transaction = await query("ByHash", [txHash]);
        nonce ??= transaction?.nonce;
        if (nonce && +(await query("Count", [payer, "latest"])) > +nonce) replacements += 1;
        if (isEffective) return transaction === null ? null : txHash;
        if (replacements > LOOKS) fail(code, "the wallet replaced or cancelled the transaction");
      }
      return txHash;
    }

    /** Sends the remaining amount to the address. @type {Onchain["pay"]} */
    async function deposit({ session: { id }, provider, signal }) {
      const { address: payer } = await connect(provider);
      const bill = /** @type {DepositSession} */ (await session(id)); // the current session, verified
      if (!bill.payable) fail("INVALID_CHECKOUT_STATE");
      const { chain, token, deposit_address: address, amount_smallest_unit: total, remaining } = bill;
      const to = token.address ?? fail("INVALID_RESPONSE");
      await ensureChain(provider, chain);
      /** @param {string} owner */
      const balance = (owner) => readNumber(provider, [{ to, data: BALANCE_OF + encodeWord(owner) }]);
      // An earlier transfer that the service has not seen yet must not be sent again.
      const previousBalance = await balance(address);
      const remainder = BigInt(total) - previousBalance;
      const amount = remainder < BigInt(remaining.amount_smallest_unit) ? remainder : BigInt(remaining.amount_smallest_unit);
      if (amount <= 0n) return { txHash: null };
      if ((await balance(payer)) < amount) fail("INSUFFICIENT_FUNDS");
      await ensureChain(provider, chain);
      halt(signal);
      const chainId = `0x${chain.network_id.toString(16)}`;
      const transfer = { from: payer, to, value: "0x0", data: TRANSFER + encodeWord(address) + encodeWord(amount), chainId };
      const txHash = await ask(provider, "eth_sendTransaction", [transfer], "ONCHAIN_TX_FAILED");
      const hasArrived = async () => (await balance(address)) >= previousBalance + amount;
      return { txHash: await follow(provider, payer, txHash, hasArrived, signal) };
    }

    /** @param {{ session: import("./v1").OnchainSession, provider: Provider, signal?: AbortSignal }} how */
    async function payOnce({ session: bill, provider, signal }) {
      const { address } = await connect(provider);
      const { id, chain, checks, steps } = bill;
      const { chainId } = chain.wallet_chain;
      const amount = BigInt(bill.amount_smallest_unit);
      const code = "ONCHAIN_TX_FAILED";
      await ensureChain(provider, chain);
      /** @param {import("./v1").OnchainCheck} [check] */
      const check = ({ method, to, data } = {}) => {
        const call = { to, data: data?.replace("{payer}", address.slice(2).toLowerCase()) };
        return readNumber(provider, [method ? address : call], method);
      };
      /** @param {string} when */
      const isDue = async (when) => {
        if (when === "always") return true;
        const allowance = await check(checks.allowance);
        return allowance < amount && (when === "allowance_lt_amount" || allowance > 0n);
      };

      let txHash = null;
      for (const { kind, when, to, value, data } of steps) {
        // A different transaction may have paid while an approval was pending.
        if (await check(checks.already_paid)) return { txHash: null };
        if ((await check(checks.balance)) < amount) fail("INSUFFICIENT_FUNDS");
        if (!(await isDue(when))) continue;
        // An approval takes time, during which the session may have ended and the wallet may have switched networks.
        if (!(await session(id)).payable) fail("INVALID_CHECKOUT_STATE");
        await ensureChain(provider, chain);
        halt(signal);
        txHash = await ask(provider, "eth_sendTransaction", [{ from: address, to, value, data, chainId }], code);
        const body = { tx_hash: txHash, step: kind };
        // This is only a hint. The service also finds the payment on the chain.
        request(`/onchain/sessions/${id}/transactions`, "step", { method: "POST", body }).catch(() => {});
        const hasHappened = async () =>
          when === "always" ? (await check(checks.already_paid)) > 0n : !(await isDue(when));
        txHash = await follow(provider, address, txHash, hasHappened, signal);
        for (let attempts = LOOKS; when !== "always" && (await isDue(when)); attempts -= 1) {
          if (!attempts) fail(code, "the approved amount is too low");
          await sleep(LOOK_MS);
        }
      }
      return { txHash };
    }

    return { discover, connect, session, ensureChain, pay };
  }

  Object.assign(window.PayIntent, { wallets });
})();
