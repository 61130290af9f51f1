-- 10,000,000 accounts: --scale 100.
\set aid 1 + permute(random_zipfian(1, 10000000, 1.01) - 1, 10000000)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
