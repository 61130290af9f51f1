-- AuctionMark, NewPurchase: the highest bidder of an item that is over pays. One that waits at or after a random number is taken; those
-- that another client has in hand are passed over. Who lacks the money gets it on credit.
\set start random(90001, 120000)
BEGIN;
SELECT count(*) AS found, coalesce(max(i_id), 0) AS item, coalesce(max(i_u_id), 0) AS seller, coalesce(max(i_current_price), 0) AS price
FROM (SELECT i_id, i_u_id, i_current_price FROM item WHERE i_status = 1 AND i_id >= :start
    ORDER BY i_id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) i \gset
\if :found = 1
SELECT ib_id AS bid, ib_buyer_id AS buyer, u_balance AS balance, nextval('purchase_ids') AS purchase
FROM item_max_bid JOIN item_bid ON ib_i_id = imb_ib_i_id AND ib_u_id = imb_ib_u_id AND ib_id = imb_ib_id
JOIN useracct ON u_id = ib_buyer_id
WHERE imb_i_id = :item AND imb_u_id = :seller \gset
INSERT INTO item_purchase VALUES (:purchase, :bid, :item, :seller, now());
UPDATE item SET i_status = 2, i_updated = now() WHERE i_id = :item AND i_u_id = :seller;
UPDATE useracct_item SET ui_ip_id = :purchase, ui_ip_ib_id = :bid, ui_ip_ib_i_id = :item, ui_ip_ib_u_id = :seller
WHERE ui_u_id = :buyer AND ui_i_id = :item AND ui_i_u_id = :seller;
\set first least(:buyer, :seller)
\set second greatest(:buyer, :seller)
\set change case when :first = :seller then :price else -:price end
\set counter -:change
UPDATE useracct SET u_balance = u_balance + :change WHERE u_id = :first;
UPDATE useracct SET u_balance = u_balance + :counter WHERE u_id = :second;
\endif
END;
