-- AuctionMark, UpdateItem: a seller rewrites a description. One in four drops an attribute, one in four gains one.
-- The item: one of the 30 000 newest, by Zipf. A slot of a ring of 30 000 numbers is drawn, whose place in popularity stays; the item is
-- the newest with that number, modulo 30 000. A number that no item has (a sequence skips some in a crash) finds nothing.
\set slot permute(random_zipfian(1, 30000, 1.05) - 1, 30000, 7)
\set drop random(1, 4)
\set add random(1, 4)
\set value random(1, 1000)
\set group 1 + (:value - 1) / 10
\set noise random(1, 1000000000)
BEGIN;
SELECT max(i_id) AS newest FROM item \gset
\set item :newest - mod(:newest - :slot, 30000)
SELECT count(*) AS found, coalesce(max(i_u_id), 0) AS seller, coalesce(max(i_num_global_attrs), 0) AS attributes
FROM (SELECT i_u_id, i_num_global_attrs FROM item WHERE i_id = :item FOR NO KEY UPDATE) i \gset
\if :found = 1
\if :drop = 1 and :attributes > 0
DELETE FROM item_attribute WHERE ia_i_id = :item AND ia_u_id = :seller
    AND ia_id = (SELECT min(ia_id) FROM item_attribute WHERE ia_i_id = :item AND ia_u_id = :seller);
\set attributes :attributes - 1
\endif
\if :add = 1
INSERT INTO item_attribute
SELECT coalesce(max(ia_id), 0) + 1, :item::bigint, :seller::bigint, :value::bigint, :group::bigint, NULL
FROM item_attribute WHERE ia_i_id = :item AND ia_u_id = :seller;
\set attributes :attributes + 1
\endif
UPDATE item SET i_description = repeat(md5(:noise::text), 5), i_num_global_attrs = :attributes, i_updated = now()
WHERE i_id = :item AND i_u_id = :seller;
\endif
END;
