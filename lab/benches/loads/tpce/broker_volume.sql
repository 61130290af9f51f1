-- TPC-E, Broker-Volume: what the limit orders that wait in a sector are worth, by broker, for 4 to 8 of the ten brokers.
\set first random(1, 10)
\set brokers random(4, 8)
\set sector random(1, 12)
BEGIN;
SELECT b_name, sum(tr_qty * tr_bid_price) AS volume
FROM sector JOIN industry ON in_sc_id = sc_id JOIN company ON co_in_id = in_id JOIN security ON s_co_id = co_id
JOIN trade_request ON tr_s_symb = s_symb JOIN broker ON b_id = tr_b_id
WHERE sc_id = :sector AND (b_id + 10 - :first) % 10 < :brokers
GROUP BY b_name ORDER BY volume DESC;
END;
