-- What the limit that a decision names was held to: a plan's further limits and those of the whole policy have figures of
-- their own, which no other table has. 0 and empty where every decision of the batch names its plan's own limit, and in
-- older rows. rate_per_s, burst: as sold; per: the calendar of a quota, whose amount is the burst, else empty.
ALTER TABLE decisions ADD COLUMN IF NOT EXISTS rate_per_s Float64 CODEC(ZSTD(1)) AFTER plan;
ALTER TABLE decisions ADD COLUMN IF NOT EXISTS burst UInt32 CODEC(T64, ZSTD(1)) AFTER rate_per_s;
ALTER TABLE decisions ADD COLUMN IF NOT EXISTS per LowCardinality(String) AFTER burst;
