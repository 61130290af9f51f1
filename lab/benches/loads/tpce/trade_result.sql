-- TPC-E, Trade-Result: the market completes the oldest order that it has in hand; those that another client has in hand are passed over. What the
-- account has is closed first, the oldest or, in 35 of 100, the newest; the rest opens a holding, which is less than 0 for a sale.
BEGIN;
WITH taken AS (
    DELETE FROM market_queue WHERE mq_t_id = (SELECT mq_t_id FROM market_queue ORDER BY mq_t_id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING mq_t_id
)
SELECT count(*) AS found, coalesce(max(mq_t_id), 0) AS trade FROM taken \gset
\if :found = 1
SELECT t_ca_id AS account, substr(t_s_symb, 3)::integer AS security, t_qty AS quantity, t_lifo AS lifo, t_is_cash AS cash, t_chrg AS charge,
    tt_is_sell AS sells, CASE tt_is_sell WHEN 1 THEN -1 ELSE 1 END AS sign, lt_price AS price, s_ex_id AS exchange
FROM trade JOIN trade_type ON tt_id = t_tt_id JOIN security ON s_symb = t_s_symb JOIN last_trade ON lt_s_symb = t_s_symb
WHERE t_id = :trade \gset
\set change :sign * :quantity
SELECT ca_b_id AS broker, ca_c_id AS customer, ca_tax_st AS taxed, c_tier AS tier
FROM customer_account JOIN customer ON c_id = ca_c_id WHERE ca_id = :account FOR NO KEY UPDATE OF customer_account \gset
INSERT INTO holding_summary VALUES (:account, symbol(:security), :change)
ON CONFLICT (hs_ca_id, hs_s_symb) DO UPDATE SET hs_qty = holding_summary.hs_qty + excluded.hs_qty;
WITH opposite AS (
    SELECT h_t_id, h_qty, h_price,
        sum(abs(h_qty)) OVER (ORDER BY CASE WHEN :lifo = 1 THEN -h_t_id ELSE h_t_id END) - abs(h_qty) AS earlier
    FROM holding WHERE h_ca_id = :account AND h_s_symb = symbol(:security) AND h_qty * (:sign) < 0
), closing AS (
    SELECT h_t_id, h_qty, h_price, least(abs(h_qty), :quantity - earlier)::integer AS part FROM opposite WHERE earlier < :quantity
), noted AS (
    INSERT INTO holding_history SELECT h_t_id, :trade, h_qty, h_qty + (:sign) * part FROM closing
), gone AS (
    DELETE FROM holding h USING closing c WHERE h.h_t_id = c.h_t_id AND abs(c.h_qty) = c.part
), lessened AS (
    UPDATE holding h SET h_qty = c.h_qty + (:sign) * c.part FROM closing c WHERE h.h_t_id = c.h_t_id AND abs(c.h_qty) > c.part
)
SELECT coalesce(sum(part), 0) AS closed, coalesce(greatest(sum(part * (h_price - :price) * (:sign)), 0), 0) AS gain FROM closing \gset
\set rest :quantity - :closed
\set opened :rest * :sign
\if :rest > 0
INSERT INTO holding VALUES (:trade, :account, symbol(:security), localtimestamp, :price, :opened);
INSERT INTO holding_history VALUES (:trade, :trade, 0, :opened);
\endif
DELETE FROM holding_summary WHERE hs_ca_id = :account AND hs_s_symb = symbol(:security) AND hs_qty = 0;
\set tax 0
\if :taxed > 0 and :sells = 1 and :gain > 0
SELECT :gain * sum(tx_rate)::bigint / 10000 AS tax FROM customer_taxrate JOIN taxrate ON tx_id = cx_tx_id WHERE cx_c_id = :customer \gset
\endif
SELECT cr_rate AS rate FROM commission_rate JOIN trade ON t_tt_id = cr_tt_id
WHERE t_id = :trade AND cr_c_tier = :tier AND cr_ex_id = :exchange AND :quantity BETWEEN cr_from_qty AND cr_to_qty \gset
\set commission :quantity * :price * :rate / 10000
\set paid :tax * case when :taxed = 1 then 1 else 0 end
\set amount -:sign * :quantity * :price - :charge - :commission - :paid
UPDATE trade SET t_comm = :commission, t_dts = localtimestamp, t_st_id = 'CMPT', t_trade_price = :price, t_tax = :tax WHERE t_id = :trade;
INSERT INTO trade_history VALUES (:trade, localtimestamp, 'CMPT');
INSERT INTO settlement VALUES (:trade, CASE WHEN :cash = 1 THEN 'Cash Account' ELSE 'Margin' END, current_date + 2, :amount);
\if :cash = 1
UPDATE customer_account SET ca_bal = ca_bal + :amount WHERE ca_id = :account;
INSERT INTO cash_transaction
SELECT t_id, localtimestamp, :amount, t_tt_id || ' ' || t_qty || ' shares of ' || s_name FROM trade JOIN security ON s_symb = t_s_symb WHERE t_id = :trade;
\endif
UPDATE broker SET b_num_trades = b_num_trades + 1, b_comm_total = b_comm_total + :commission WHERE b_id = :broker;
\endif
END;
