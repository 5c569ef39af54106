-- concurrently: by itself, so that payments go on being made meanwhile
ALTER TABLE ledger_entry VALIDATE CONSTRAINT ledger_entry_fact;
ALTER TABLE ledger_entry VALIDATE CONSTRAINT ledger_entry_debit;
ALTER TABLE ledger_entry VALIDATE CONSTRAINT ledger_entry_credit;
