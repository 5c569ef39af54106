-- A payment contract accepts only the tokens of its deployment. Therefore USDC stays disabled on
-- chains that already have a contract, and if an operator has changed the token.
UPDATE chain_token t SET enabled = true
WHERE (chain, symbol, address, decimals) IN (
    ('ethereum', 'USDC', '\xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48', 6),
    ('bsc', 'USDC', '\x8ac76a51cc950d9822d68b83fe1ad97b32cd580d', 18)
) AND NOT EXISTS (SELECT FROM chain_contract c WHERE c.chain = t.chain);
