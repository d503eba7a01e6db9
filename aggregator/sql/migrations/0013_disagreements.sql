-- cause: what explains a finding of kind 'live', empty where nothing does: 'redriven' where the live totals lack decisions
-- of letters that were re-driven, which came when their copy had long gone on.
ALTER TABLE disagreements ADD COLUMN IF NOT EXISTS cause LowCardinality(String);
