-- How far a test merchant has moved its clock on. A live merchant has none: the key says so.
CREATE TABLE test_clock (
    merchant_id bigint PRIMARY KEY,
    livemode boolean NOT NULL DEFAULT false CONSTRAINT test_clock_livemode CHECK (NOT livemode),
    advanced_s bigint NOT NULL CONSTRAINT test_clock_advanced CHECK (advanced_s >= 0),
    CONSTRAINT test_clock_mode FOREIGN KEY (merchant_id, livemode)
        REFERENCES merchant (id, livemode)
);
