-- concurrently: by itself, so that cases go on being opened meanwhile
ALTER TABLE money_case VALIDATE CONSTRAINT money_case_kind;
