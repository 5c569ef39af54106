-- What 0008 asks of rows that were there before is checked while others read and write.
ALTER TABLE capture VALIDATE CONSTRAINT capture_callback;
ALTER TABLE capture VALIDATE CONSTRAINT capture_known;
ALTER TABLE money_case VALIDATE CONSTRAINT money_case_about;
