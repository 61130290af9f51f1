-- TPC-E, Trade-Status: the fifty newest trades of an account.
-- The customer: see ranked() in init.sql. Accounts of a customer are numbered, and their number follows from the rank.
\set weight random(0, 1999999) / 1000.0
\set rank int(case when :weight < 200 then sqrt(22500 + 500 * :weight) - 150.5 when :weight < 1400 then sqrt(290000 + 1000 * :weight) - 500.5 else sqrt(500 * :weight - 277500) + 149.5 end)
\set rank least(greatest(:rank, 0), 999)
\set customer 1 + :rank * 7919 % 1000
\set accounts case when :rank < 200 then 1 + :rank % 4 when :rank < 800 then 2 + :rank % 7 else 5 + :rank % 6 end
\set account :customer * 10 + random(0, :accounts - 1)
BEGIN;
SELECT t_id, t_dts, st_name, tt_name, t_s_symb, t_qty, t_exec_name, t_chrg, s_name, ex_name
FROM (SELECT * FROM trade WHERE t_ca_id = :account ORDER BY t_dts DESC LIMIT 50) t
JOIN status_type ON st_id = t_st_id JOIN trade_type ON tt_id = t_tt_id JOIN security ON s_symb = t_s_symb JOIN exchange ON ex_id = s_ex_id
ORDER BY t_dts DESC;
SELECT c_l_name, c_f_name, b_name FROM customer_account JOIN customer ON c_id = ca_c_id JOIN broker ON b_id = ca_b_id WHERE ca_id = :account;
END;
