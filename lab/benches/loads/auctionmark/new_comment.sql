-- AuctionMark, NewComment: a question about an item. u_comments of the seller counts what has no answer.
-- The item: one of the 30 000 newest, by Zipf. A slot of a ring of 30 000 numbers is drawn, whose place in popularity stays; the item is
-- the newest with that number, modulo 30 000. A number that no item has (a sequence skips some in a crash) finds nothing.
\set slot permute(random_zipfian(1, 30000, 1.05) - 1, 30000, 7)
\set share random(0, 999999)
\set noise random(1, 1000000000)
BEGIN;
SELECT max(i_id) AS newest FROM item \gset
\set item :newest - mod(:newest - :slot, 30000)
SELECT count(*) AS found, coalesce(max(i_u_id), 0) AS seller, coalesce(max(i_num_comments), 0) + 1 AS comment
FROM (SELECT i_u_id, i_num_comments FROM item WHERE i_id = :item FOR NO KEY UPDATE) i \gset
\if :found = 1
\set buyer 1 + int(20000.0 * :share * :share / 1000000000000) * 7919 % 20000
\set buyer case when :buyer = :seller then :buyer % 20000 + 1 else :buyer end
INSERT INTO item_comment
VALUES (:comment, :item, :seller, :buyer, repeat(md5(:noise::text), 2), NULL, now(), now());
UPDATE item SET i_num_comments = :comment WHERE i_id = :item AND i_u_id = :seller;
UPDATE useracct SET u_comments = u_comments + 1, u_updated = now() WHERE u_id = :seller;
\endif
END;
