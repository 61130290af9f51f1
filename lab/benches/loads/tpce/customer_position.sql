-- TPC-E, Customer-Position: what the accounts of a customer are worth, who is found by number or by tax number, and once in two the last
-- ten trades of one of them with their history.
-- The customer: see ranked() in init.sql. Accounts of a customer are numbered, and their number follows from the rank.
\set weight random(0, 1999999) / 1000.0
\set rank int(case when :weight < 200 then sqrt(22500 + 500 * :weight) - 150.5 when :weight < 1400 then sqrt(290000 + 1000 * :weight) - 500.5 else sqrt(500 * :weight - 277500) + 149.5 end)
\set rank least(greatest(:rank, 0), 999)
\set customer 1 + :rank * 7919 % 1000
\set accounts case when :rank < 200 then 1 + :rank % 4 when :rank < 800 then 2 + :rank % 7 else 5 + :rank % 6 end
\set account :customer * 10 + random(0, :accounts - 1)
\set by_tax random(1, 2)
\set history random(1, 2)
BEGIN;
\if :by_tax = 1
SELECT c_id FROM customer WHERE c_tax_id = 'C' || lpad(:customer::text, 6, '0');
\endif
SELECT c_st_id, c_l_name, c_f_name, c_m_name, c_gndr, c_tier, c_dob, c_ad_id, c_phone_1, c_phone_2, c_phone_3, c_email_1, c_email_2
FROM customer WHERE c_id = :customer;
SELECT ca_id, ca_bal, coalesce(sum(hs_qty * lt_price), 0) AS assets
FROM customer_account LEFT JOIN holding_summary ON hs_ca_id = ca_id LEFT JOIN last_trade ON lt_s_symb = hs_s_symb
WHERE ca_c_id = :customer GROUP BY ca_id, ca_bal ORDER BY assets LIMIT 10;
\if :history = 1
SELECT t_id, t_s_symb, t_qty, st_name, th_dts
FROM (SELECT t_id, t_s_symb, t_qty FROM trade WHERE t_ca_id = :account ORDER BY t_dts DESC LIMIT 10) t
JOIN trade_history ON th_t_id = t_id JOIN status_type ON st_id = th_st_id ORDER BY th_dts DESC LIMIT 30;
\endif
END;
