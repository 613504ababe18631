CREATE TABLE visits (visit_id UInt64, page String, at DateTime)
ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY (visit_id)
