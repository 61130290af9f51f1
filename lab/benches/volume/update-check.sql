-- the balances are not those of the transactions that were acknowledged
SELECT abs(sum(abalance) - :transactions) FROM pgbench_accounts;
