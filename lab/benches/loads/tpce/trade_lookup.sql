-- TPC-E, Trade-Lookup: twenty trades with settlement, payment and history: any (30 of 100), of an account from a time on (30), of a security from a
-- time on (30); or what became of the holdings of an account's first trade from a time on (10). Times are those of loaded trades, by NURand: numbers
-- with certain bits are drawn more often.
-- The customer: see ranked() in init.sql. Accounts of a customer are numbered, and their number follows from the rank.
\set weight random(0, 1999999) / 1000.0
\set rank int(case when :weight < 200 then sqrt(22500 + 500 * :weight) - 150.5 when :weight < 1400 then sqrt(290000 + 1000 * :weight) - 500.5 else sqrt(500 * :weight - 277500) + 149.5 end)
\set rank least(greatest(:rank, 0), 999)
\set customer 1 + :rank * 7919 % 1000
\set accounts case when :rank < 200 then 1 + :rank % 4 when :rank < 800 then 2 + :rank % 7 else 5 + :rank % 6 end
\set account :customer * 10 + random(0, :accounts - 1)
\set which random(1, 100)
\set noise random(1, 1000000000)
\set from 1 + (random(0, 460799) | (random(0, 2047) << 7)) % 460800
\set security random(1, 685)
BEGIN;
\if :which <= 30
SELECT t_id, t_bid_price, t_exec_name, t_is_cash, tt_is_mrkt, t_trade_price
FROM trade JOIN trade_type ON tt_id = t_tt_id WHERE t_id = ANY (trades(:noise));
SELECT se_t_id, se_amt, se_cash_due_date, se_cash_type, ct_amt, ct_dts, ct_name
FROM settlement LEFT JOIN cash_transaction ON ct_t_id = se_t_id WHERE se_t_id = ANY (trades(:noise));
SELECT th_t_id, th_dts, th_st_id FROM trade_history WHERE th_t_id = ANY (trades(:noise)) ORDER BY th_t_id, th_dts;
\elif :which <= 60
SELECT t_bid_price, t_exec_name, t_is_cash, t_id, t_trade_price, se_amt, se_cash_due_date, se_cash_type, ct_amt, ct_dts, ct_name
FROM (SELECT * FROM trade WHERE t_ca_id = :account AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20) t
LEFT JOIN settlement ON se_t_id = t_id LEFT JOIN cash_transaction ON ct_t_id = t_id;
SELECT th_t_id, th_dts, th_st_id FROM trade_history
WHERE th_t_id = ANY (ARRAY(SELECT t_id FROM trade WHERE t_ca_id = :account AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20));
\elif :which <= 90
SELECT t_ca_id, t_exec_name, t_is_cash, t_trade_price, t_qty, t_dts, t_id, t_tt_id, se_amt, se_cash_due_date, se_cash_type, ct_amt, ct_dts, ct_name
FROM (SELECT * FROM trade WHERE t_s_symb = symbol(:security) AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20) t
LEFT JOIN settlement ON se_t_id = t_id LEFT JOIN cash_transaction ON ct_t_id = t_id;
SELECT th_t_id, th_dts, th_st_id FROM trade_history
WHERE th_t_id = ANY (ARRAY(SELECT t_id FROM trade WHERE t_s_symb = symbol(:security) AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20));
\else
SELECT k.hh_h_t_id, k.hh_t_id, k.hh_before_qty, k.hh_after_qty
FROM (SELECT t_id FROM trade WHERE t_ca_id = :account AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 1) t
JOIN holding_history h ON h.hh_t_id = t_id JOIN holding_history k ON k.hh_h_t_id = h.hh_h_t_id LIMIT 20;
\endif
END;
