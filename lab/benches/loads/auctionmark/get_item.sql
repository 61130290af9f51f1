-- AuctionMark, GetItem: an item and its seller. One in four reads any item of the load, on offer or not, by Zipf as well.
-- The item: one of the 30 000 newest, by Zipf. A slot of a ring of 30 000 numbers is drawn, whose place in popularity stays; the item is
-- the newest with that number, modulo 30 000. A number that no item has (a sequence skips some in a crash) finds nothing.
\set slot permute(random_zipfian(1, 30000, 1.05) - 1, 30000, 7)
\set any 1 + permute(random_zipfian(1, 150000, 1.05) - 1, 150000, 8)
\set old random(1, 4)
BEGIN;
SELECT max(i_id) AS newest FROM item \gset
\set item :newest - mod(:newest - :slot, 30000)
\if :old = 1
\set item :any
\endif
SELECT i_id, i_u_id, i_name, i_description, i_user_attributes, i_initial_price, i_current_price, i_num_bids, i_end_date, i_status
FROM item WHERE i_id = :item;
SELECT u_id, u_rating, u_sattr0, u_sattr1, u_sattr2, u_sattr3, u_sattr4, r_name
FROM item JOIN useracct ON u_id = i_u_id JOIN region ON r_id = u_r_id WHERE i_id = :item;
END;
