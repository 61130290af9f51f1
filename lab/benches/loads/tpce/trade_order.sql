-- TPC-E, Trade-Order: an order of an account for one of its ten securities. It goes to the market at once (60 of 100) or waits for its price. One in
-- ten is placed by somebody else who may, 40 in 100 name the company, 8 in 100 buy on margin, and one in a hundred is withdrawn.
-- The customer: see ranked() in init.sql. Accounts of a customer are numbered, and their number follows from the rank.
\set weight random(0, 1999999) / 1000.0
\set rank int(case when :weight < 200 then sqrt(22500 + 500 * :weight) - 150.5 when :weight < 1400 then sqrt(290000 + 1000 * :weight) - 500.5 else sqrt(500 * :weight - 277500) + 149.5 end)
\set rank least(greatest(:rank, 0), 999)
\set customer 1 + :rank * 7919 % 1000
\set accounts case when :rank < 200 then 1 + :rank % 4 when :rank < 800 then 2 + :rank % 7 else 5 + :rank % 6 end
\set account :customer * 10 + random(0, :accounts - 1)
\set security 1 + (:account * 37 + random(0, 9) * 68) % 685
\set company case when :security > 500 then :security - 500 else :security end
\set drawn random(1, 100)
\set type case when :drawn <= 30 then 1 when :drawn <= 60 then 2 when :drawn <= 80 then 3 when :drawn <= 90 then 4 else 5 end
\set sells case when :type = 2 or :type >= 4 then 1 else 0 end
\set quantity 100 << random(0, 3)
\set limit random(2000, 3000)
\set cash case when random(1, 100) <= 92 then 1 else 0 end
\set lifo case when random(1, 100) <= 35 then 1 else 0 end
\set by_name random(1, 100)
\set other random(1, 10)
\set withdrawn random(1, 100)
\set noise random(1, 1000000000)
BEGIN;
SELECT ca_b_id AS broker, ca_tax_st AS taxed, c_tier AS tier
FROM customer_account JOIN customer ON c_id = ca_c_id JOIN broker ON b_id = ca_b_id WHERE ca_id = :account \gset
\if :other = 1
SELECT ap_acl, ap_tax_id, ap_l_name, ap_f_name FROM account_permission WHERE ap_ca_id = :account;
\endif
\if :by_name <= 40
SELECT co_id, s_ex_id AS exchange, s_name
FROM company JOIN security ON s_co_id = co_id
WHERE co_name = 'Company ' || :company::text AND s_issue = CASE WHEN :security > 500 THEN 'PREF_A' ELSE 'COMMON' END \gset
\else
SELECT co_id, s_ex_id AS exchange, co_name FROM security JOIN company ON co_id = s_co_id WHERE s_symb = symbol(:security) \gset
\endif
SELECT lt_price AS price FROM last_trade WHERE lt_s_symb = symbol(:security) \gset
SELECT hs_qty FROM holding_summary WHERE hs_ca_id = :account AND hs_s_symb = symbol(:security);
SELECT h_qty, h_price FROM holding WHERE h_ca_id = :account AND h_s_symb = symbol(:security) ORDER BY h_dts;
\if :taxed > 0 and :sells = 1
SELECT sum(tx_rate) FROM customer_taxrate JOIN taxrate ON tx_id = cx_tx_id WHERE cx_c_id = :customer;
\endif
\if :cash = 0
SELECT ca_bal + coalesce((SELECT sum(hs_qty * lt_price) FROM holding_summary JOIN last_trade ON lt_s_symb = hs_s_symb WHERE hs_ca_id = ca_id), 0)
FROM customer_account WHERE ca_id = :account;
\endif
SELECT ch_chrg AS charge, cr_rate, nextval('trade_ids') AS trade
FROM commission_rate JOIN charge ON ch_tt_id = cr_tt_id AND ch_c_tier = cr_c_tier
WHERE cr_c_tier = :tier AND cr_tt_id = (ARRAY['TMB', 'TMS', 'TLB', 'TLS', 'TSL'])[:type] AND cr_ex_id = :exchange
    AND :quantity BETWEEN cr_from_qty AND cr_to_qty \gset
\if :type <= 2
INSERT INTO trade VALUES (:trade, localtimestamp, 'SBMT', (ARRAY['TMB', 'TMS', 'TLB', 'TLS', 'TSL'])[:type], :cash, symbol(:security), :quantity,
    :price, :account, md5(:noise::text), NULL, :charge, 0, 0, :lifo);
INSERT INTO trade_history VALUES (:trade, localtimestamp, 'SBMT');
INSERT INTO market_queue VALUES (:trade);
\else
INSERT INTO trade VALUES (:trade, localtimestamp, 'PNDG', (ARRAY['TMB', 'TMS', 'TLB', 'TLS', 'TSL'])[:type], :cash, symbol(:security), :quantity,
    :limit, :account, md5(:noise::text), NULL, :charge, 0, 0, :lifo);
INSERT INTO trade_history VALUES (:trade, localtimestamp, 'PNDG');
INSERT INTO trade_request VALUES (:trade, (ARRAY['TMB', 'TMS', 'TLB', 'TLS', 'TSL'])[:type], symbol(:security), :quantity, :limit, :broker);
\endif
\if :withdrawn = 1
ROLLBACK;
\else
END;
\endif
