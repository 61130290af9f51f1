-- TPC-E, Trade-Update: twenty trades as Trade-Lookup finds them, and a word of each is changed: who placed it (any trades, 33 of 100), the kind of
-- settlement (of an account, 33) or the name of the payment (of a security, 34). Locks are taken by rising number of the trade.
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
\if :which <= 33
SELECT count(*) AS found FROM (SELECT FROM trade WHERE t_id = ANY (trades(:noise)) ORDER BY t_id FOR NO KEY UPDATE) t;
UPDATE trade SET t_exec_name = CASE WHEN t_exec_name LIKE '% X %' THEN replace(t_exec_name, ' X ', ' ') ELSE left(t_exec_name, 8) || ' X ' || substr(t_exec_name, 9, 35) END
WHERE t_id = ANY (trades(:noise));
SELECT t_id, t_bid_price, t_exec_name, t_is_cash, tt_is_mrkt, t_trade_price
FROM trade JOIN trade_type ON tt_id = t_tt_id WHERE t_id = ANY (trades(:noise));
SELECT se_t_id, se_amt, se_cash_due_date, se_cash_type, ct_amt, ct_dts, ct_name
FROM settlement LEFT JOIN cash_transaction ON ct_t_id = se_t_id WHERE se_t_id = ANY (trades(:noise));
SELECT th_t_id, th_dts, th_st_id FROM trade_history WHERE th_t_id = ANY (trades(:noise)) ORDER BY th_t_id, th_dts;
\elif :which <= 66
SELECT count(*) AS found
FROM (SELECT FROM settlement
    WHERE se_t_id = ANY (ARRAY(SELECT t_id FROM trade WHERE t_ca_id = :account AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20))
    ORDER BY se_t_id FOR NO KEY UPDATE) s;
UPDATE settlement SET se_cash_type = CASE se_cash_type WHEN 'Cash Account' THEN 'Cash' WHEN 'Cash' THEN 'Cash Account' WHEN 'Margin' THEN 'Margin Account' ELSE 'Margin' END
WHERE se_t_id = ANY (ARRAY(SELECT t_id FROM trade WHERE t_ca_id = :account AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20));
SELECT t_bid_price, t_exec_name, t_is_cash, t_id, t_trade_price, se_amt, se_cash_due_date, se_cash_type, ct_amt, ct_dts, ct_name
FROM (SELECT * FROM trade WHERE t_ca_id = :account AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20) t
LEFT JOIN settlement ON se_t_id = t_id LEFT JOIN cash_transaction ON ct_t_id = t_id;
SELECT th_t_id, th_dts, th_st_id FROM trade_history
WHERE th_t_id = ANY (ARRAY(SELECT t_id FROM trade WHERE t_ca_id = :account AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20));
\else
SELECT count(*) AS found
FROM (SELECT FROM cash_transaction
    WHERE ct_t_id = ANY (ARRAY(SELECT t_id FROM trade WHERE t_s_symb = symbol(:security) AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20))
    ORDER BY ct_t_id FOR NO KEY UPDATE) c;
UPDATE cash_transaction SET ct_name = CASE WHEN ct_name LIKE '% shares of %' THEN replace(ct_name, ' shares of ', ' Shares of ') ELSE replace(ct_name, ' Shares of ', ' shares of ') END
WHERE ct_t_id = ANY (ARRAY(SELECT t_id FROM trade WHERE t_s_symb = symbol(:security) AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20));
SELECT t_ca_id, t_exec_name, t_is_cash, t_trade_price, t_qty, s_name, t_dts, t_id, tt_name, se_amt, se_cash_due_date, se_cash_type, ct_amt, ct_dts, ct_name
FROM (SELECT * FROM trade WHERE t_s_symb = symbol(:security) AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20) t
JOIN trade_type ON tt_id = t_tt_id JOIN security ON s_symb = t_s_symb
LEFT JOIN settlement ON se_t_id = t_id LEFT JOIN cash_transaction ON ct_t_id = t_id;
SELECT th_t_id, th_dts, th_st_id FROM trade_history
WHERE th_t_id = ANY (ARRAY(SELECT t_id FROM trade WHERE t_s_symb = symbol(:security) AND t_dts >= traded(:from) ORDER BY t_dts LIMIT 20));
\endif
END;
