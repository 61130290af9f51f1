-- TPC-E, Market-Watch: what securities are worth now beside their worth at the end of a day: those that a customer watches (60 of 100), those
-- that an account has (35) or those of an industry (5).
-- The customer: see ranked() in init.sql. Accounts of a customer are numbered, and their number follows from the rank.
\set weight random(0, 1999999) / 1000.0
\set rank int(case when :weight < 200 then sqrt(22500 + 500 * :weight) - 150.5 when :weight < 1400 then sqrt(290000 + 1000 * :weight) - 500.5 else sqrt(500 * :weight - 277500) + 149.5 end)
\set rank least(greatest(:rank, 0), 999)
\set customer 1 + :rank * 7919 % 1000
\set accounts case when :rank < 200 then 1 + :rank % 4 when :rank < 800 then 2 + :rank % 7 else 5 + :rank % 6 end
\set account :customer * 10 + random(0, :accounts - 1)
\set which random(1, 100)
\set industry random(1, 102)
\set day random(0, 259)
\set day :day + :day / 5 * 2
BEGIN;
\if :which <= 60
SELECT sum(s_num_out * lt_price) AS now, sum(s_num_out * dm_close) AS before
FROM watch_list JOIN watch_item ON wi_wl_id = wl_id JOIN security ON s_symb = wi_s_symb JOIN last_trade ON lt_s_symb = s_symb
JOIN daily_market ON dm_s_symb = s_symb AND dm_date = date '2004-01-05' + :day::integer
WHERE wl_c_id = :customer;
\elif :which <= 95
SELECT sum(s_num_out * lt_price) AS now, sum(s_num_out * dm_close) AS before
FROM holding_summary JOIN security ON s_symb = hs_s_symb JOIN last_trade ON lt_s_symb = s_symb
JOIN daily_market ON dm_s_symb = s_symb AND dm_date = date '2004-01-05' + :day::integer
WHERE hs_ca_id = :account;
\else
SELECT sum(s_num_out * lt_price) AS now, sum(s_num_out * dm_close) AS before
FROM company JOIN security ON s_co_id = co_id JOIN last_trade ON lt_s_symb = s_symb
JOIN daily_market ON dm_s_symb = s_symb AND dm_date = date '2004-01-05' + :day::integer
WHERE co_in_id = :industry;
\endif
END;
