-- AuctionMark, CloseAuctions: up to 25 items whose time is over. What has bids waits for the highest bidder to pay, the rest is closed.
-- In the original one client does it at intervals. Here the one that gets the advisory lock does. It locks the items, and then the two
-- statements that follow find the same 25: nobody else ends an auction, and now() is the transaction's.
BEGIN;
SELECT pg_try_advisory_xact_lock(16)::integer AS mine \gset
\if :mine = 1
SELECT count(*) AS due
FROM (SELECT FROM item WHERE i_status = 0 AND i_end_date <= now() ORDER BY i_end_date, i_id LIMIT 25 FOR NO KEY UPDATE) i \gset
\if :due > 0
INSERT INTO useracct_item (ui_u_id, ui_i_id, ui_i_u_id, ui_created)
SELECT ib_buyer_id, i_id, i_u_id, now()
FROM (SELECT i_id, i_u_id FROM item WHERE i_status = 0 AND i_end_date <= now() ORDER BY i_end_date, i_id LIMIT 25) i
JOIN item_max_bid ON imb_i_id = i_id AND imb_u_id = i_u_id
JOIN item_bid ON ib_i_id = imb_ib_i_id AND ib_u_id = imb_ib_u_id AND ib_id = imb_ib_id;
UPDATE item SET i_status = CASE WHEN i_num_bids > 0 THEN 1 ELSE 2 END, i_updated = now()
WHERE (i_id, i_u_id) IN (
    SELECT i_id, i_u_id FROM item WHERE i_status = 0 AND i_end_date <= now() ORDER BY i_end_date, i_id LIMIT 25);
\endif
\endif
END;
