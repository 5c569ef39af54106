-- The side that a member views in the portal: the merchant's live data, or its test merchant's.
ALTER TABLE member_session ADD COLUMN in_test boolean NOT NULL DEFAULT false;
