-- reads changed a balance
SELECT count(*) FROM pgbench_accounts WHERE abalance <> 0;
