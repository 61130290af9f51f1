-- 10,000,000 accounts: --scale 100.
\set aid 1 + permute(random_zipfian(1, 10000000, 1.01) - 1, 10000000)
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
