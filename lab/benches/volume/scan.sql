-- 1,300,000 accounts, 170 MB: --scale 13.
SELECT sum(abalance) FROM pgbench_accounts;
