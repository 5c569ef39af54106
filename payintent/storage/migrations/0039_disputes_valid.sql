-- What 0029 asks of rows that were there before is checked while others read and write.
ALTER TABLE money_case VALIDATE CONSTRAINT money_case_kind;
