-- AuctionMark, NewBid: a bid up to a limit. The highest limit leads; its owner pays one step above the second highest at most. A step
-- is a fortieth of the initial price. One in twenty comes for an item that is over and changes nothing, as do those that are late.
--
-- Locks in all scripts: items first, then what belongs to them, then users by rising number. A lock is FOR NO KEY UPDATE, as that of an
-- UPDATE of these columns: the checks of foreign keys do not wait for it.
-- The item: one of the 30 000 newest, by Zipf. A slot of a ring of 30 000 numbers is drawn, whose place in popularity stays; the item is
-- the newest with that number, modulo 30 000. A number that no item has (a sequence skips some in a crash) finds nothing.
\set slot permute(random_zipfian(1, 30000, 1.05) - 1, 30000, 7)
\set over random(1, 20)
\set any random(1, 120000)
\set share random(0, 999999)
\set steps random(1, 8)
BEGIN;
SELECT max(i_id) AS newest FROM item \gset
\set item :newest - mod(:newest - :slot, 30000)
\if :over = 1
\set item :any
\endif
SELECT count(*) AS open, coalesce(max(i_u_id), 0) AS seller, coalesce(max(i_num_bids), 0) AS bids,
    coalesce(max(i_current_price), 0) AS price, greatest(max(i_initial_price) / 40, 1) AS step
FROM (SELECT * FROM item WHERE i_id = :item AND i_status = 0 FOR NO KEY UPDATE) i \gset
\if :open = 1
-- The bidder is drawn as dealer() in init.sql draws: never the seller, but who comes after that one.
\set buyer 1 + int(20000.0 * :share * :share / 1000000000000) * 7919 % 20000
\set buyer case when :buyer = :seller then :buyer % 20000 + 1 else :buyer end
\set limit :price + :steps * :step
\set bid :bids + 1
\if :bids = 0
INSERT INTO item_bid VALUES (:bid, :item, :seller, :buyer, :price, :limit, now(), now());
INSERT INTO item_max_bid VALUES (:item, :seller, :bid, :item, :seller, now(), now());
UPDATE item SET i_num_bids = :bid, i_updated = now() WHERE i_id = :item AND i_u_id = :seller;
\else
SELECT ib_id AS top_bid, ib_buyer_id AS top_buyer, ib_max_bid AS top_limit
FROM item_max_bid JOIN item_bid ON ib_i_id = imb_ib_i_id AND ib_u_id = imb_ib_u_id AND ib_id = imb_ib_id
WHERE imb_i_id = :item AND imb_u_id = :seller \gset
\if :buyer = :top_buyer
-- Who leads already raises the limit, and nobody else sees it.
UPDATE item_bid SET ib_max_bid = greatest(ib_max_bid, :limit), ib_updated = now()
WHERE ib_i_id = :item AND ib_u_id = :seller AND ib_id = :top_bid;
\elif :limit > :top_limit
\set price least(:limit, :top_limit + :step)
INSERT INTO item_bid VALUES (:bid, :item, :seller, :buyer, :price, :limit, now(), now());
UPDATE item_max_bid SET imb_ib_id = :bid, imb_updated = now() WHERE imb_i_id = :item AND imb_u_id = :seller;
UPDATE item SET i_num_bids = :bid, i_current_price = :price, i_updated = now() WHERE i_id = :item AND i_u_id = :seller;
\else
\set price least(:top_limit, :limit + :step)
INSERT INTO item_bid VALUES (:bid, :item, :seller, :buyer, :limit, :limit, now(), now());
UPDATE item_bid SET ib_bid = :price, ib_updated = now() WHERE ib_i_id = :item AND ib_u_id = :seller AND ib_id = :top_bid;
UPDATE item SET i_num_bids = :bid, i_current_price = :price, i_updated = now() WHERE i_id = :item AND i_u_id = :seller;
\endif
\endif
\endif
END;
