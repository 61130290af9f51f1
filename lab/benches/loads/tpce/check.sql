-- new trades that are missing of what 101 transactions in 1000 bring, of which one in a hundred is withdrawn
SELECT greatest(floor(:transactions * 0.09999 - 2 * sqrt(:transactions)) - (count(*) - 461600), 0) FROM trade;
-- trades whose settlement is not one if completed, or none
SELECT count(*) FROM trade FULL JOIN settlement ON se_t_id = t_id WHERE (t_st_id IS NOT DISTINCT FROM 'CMPT') <> (se_t_id IS NOT NULL);
-- trades whose history is not that of their status: a limit order waits, is sent and is completed, another is sent and is completed
SELECT count(*) FROM trade
LEFT JOIN (SELECT th_t_id, string_agg(th_st_id, ' ' ORDER BY th_st_id = 'CMPT', th_st_id = 'SBMT') AS past FROM trade_history GROUP BY 1) h ON th_t_id = t_id
JOIN trade_type ON tt_id = t_tt_id
WHERE past IS DISTINCT FROM CASE WHEN tt_is_mrkt = 1 THEN '' WHEN t_st_id = 'PNDG' THEN 'PNDG' ELSE 'PNDG ' END
    || CASE t_st_id WHEN 'PNDG' THEN '' WHEN 'SBMT' THEN 'SBMT' ELSE 'SBMT CMPT' END;
-- orders that wait for their price and are not in the book, or are in it and do not wait, or differ from it
SELECT count(*) FROM (SELECT * FROM trade WHERE t_st_id = 'PNDG') t FULL JOIN trade_request ON tr_t_id = t_id
WHERE (t_id, t_tt_id, t_s_symb, t_qty, t_bid_price) IS DISTINCT FROM (tr_t_id, tr_tt_id, tr_s_symb, tr_qty, tr_bid_price);
-- orders that the market has in hand and its queue has not, or the other way round
SELECT count(*) FROM (SELECT t_id FROM trade WHERE t_st_id = 'SBMT') t FULL JOIN market_queue ON mq_t_id = t_id WHERE t_id IS NULL OR mq_t_id IS NULL;
-- settlements that are not the trade's price, less charge, commission and the tax where the account pays it
SELECT count(*) FROM settlement JOIN trade ON t_id = se_t_id JOIN trade_type ON tt_id = t_tt_id JOIN customer_account ON ca_id = t_ca_id
WHERE se_amt <> CASE tt_is_sell WHEN 1 THEN 1 ELSE -1 END * t_qty * t_trade_price - t_chrg - t_comm - CASE ca_tax_st WHEN 1 THEN t_tax ELSE 0 END;
-- settlements in cash that were not paid as they say, or on margin that were paid
SELECT count(*) FROM settlement JOIN trade ON t_id = se_t_id FULL JOIN cash_transaction ON ct_t_id = t_id
WHERE ct_amt IS DISTINCT FROM CASE t_is_cash WHEN 1 THEN se_amt END;
-- accounts whose balance is not the first one and what was paid
SELECT count(*) FROM customer_account
LEFT JOIN (SELECT t_ca_id, sum(ct_amt) AS moved FROM cash_transaction JOIN trade ON t_id = ct_t_id GROUP BY 1) c ON t_ca_id = ca_id
WHERE ca_bal <> ca_first_bal + coalesce(moved, 0);
-- sums of holdings that are not those of the holdings, or are 0
SELECT count(*) FROM holding_summary FULL JOIN (SELECT h_ca_id, h_s_symb, sum(h_qty) AS has FROM holding GROUP BY 1, 2) h
    ON h_ca_id = hs_ca_id AND h_s_symb = hs_s_symb
WHERE hs_qty IS DISTINCT FROM has OR hs_qty = 0;
-- holdings that are not what their history left, or are of another account or security than their trade
SELECT count(*) FROM holding FULL JOIN (SELECT hh_h_t_id, sum(hh_after_qty - hh_before_qty) AS remains FROM holding_history GROUP BY 1) k ON hh_h_t_id = h_t_id
LEFT JOIN trade ON t_id = h_t_id
WHERE coalesce(h_qty, 0) <> coalesce(remains, 0) OR h_qty = 0 OR h_t_id IS NOT NULL AND (h_ca_id, h_s_symb) IS DISTINCT FROM (t_ca_id, t_s_symb);
-- trades that did not change holdings by their quantity, or did before they were completed
SELECT count(*) FROM trade JOIN trade_type ON tt_id = t_tt_id
LEFT JOIN (SELECT hh_t_id, sum(hh_after_qty - hh_before_qty) AS change FROM holding_history GROUP BY 1) k ON hh_t_id = t_id
WHERE coalesce(change, 0) <> CASE WHEN t_st_id <> 'CMPT' THEN 0 WHEN tt_is_sell = 1 THEN -t_qty ELSE t_qty END;
-- brokers whose trades or commission are not those of the accounts they have
SELECT count(*) FROM broker
LEFT JOIN (SELECT ca_b_id, count(*) AS trades, sum(t_comm) AS earned FROM trade JOIN customer_account ON ca_id = t_ca_id WHERE t_st_id = 'CMPT' GROUP BY 1) t
    ON ca_b_id = b_id
WHERE b_num_trades <> coalesce(trades, 0) OR b_comm_total <> coalesce(earned, 0);
-- trades, of every 50th account, that its index does not find one by one
SELECT count(*) FROM (SELECT t_id, t_ca_id, t_dts FROM trade WHERE t_ca_id % 50 = 7 AND t_qty > 0) t
WHERE 1 <> (SELECT count(*) FROM trade k WHERE k.t_ca_id = t.t_ca_id AND k.t_dts = t.t_dts AND k.t_id + 0 = t.t_id);
-- trades, of every 50th, that the keys of trades and of their histories do not find
SELECT count(*) FROM (SELECT t_id FROM trade WHERE t_id % 50 = 7 AND t_qty > 0) t
WHERE 1 <> (SELECT count(*) FROM trade k WHERE k.t_id = t.t_id) OR 0 = (SELECT count(*) FROM trade_history WHERE th_t_id = t.t_id);
