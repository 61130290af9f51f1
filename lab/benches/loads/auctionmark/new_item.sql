-- AuctionMark, NewItem: an item with its category, 1 to 3 attributes and 1 to 3 images; the seller pays a fee of 1.
\set share random(0, 999999)
\set category random(100, 999)
\set value random(1, 1000)
\set attributes random(1, 3)
\set last :value + :attributes - 1
\set images random(1, 3)
\set price int(100 * exp(random(0, 690775) / 100000.0))
\set seconds random(60, 3600)
\set noise random(1, 1000000000)
\set seller 1 + int(20000.0 * :share * :share / 1000000000000) * 7919 % 20000
BEGIN;
SELECT gag_name, gav_name, gag_c_id
FROM global_attribute_value JOIN global_attribute_group ON gag_id = gav_gag_id
WHERE gav_id BETWEEN :value AND :last;
SELECT c.c_id, c.c_name, p.c_name FROM category c JOIN category p ON p.c_id = c.c_parent_id WHERE c.c_id = :category;
SELECT nextval('item_ids') AS item \gset
INSERT INTO item (i_id, i_u_id, i_c_id, i_name, i_description, i_user_attributes, i_initial_price, i_current_price, i_num_bids,
    i_num_images, i_num_global_attrs, i_num_comments, i_start_date, i_end_date, i_status, i_created, i_updated)
VALUES (:item, :seller, :category, repeat(md5(:noise::text), 2), repeat(md5((:noise + 1)::text), 5), repeat(md5((:noise + 2)::text), 2),
    :price, :price, 0, :images, :attributes, 0, now(), now() + :seconds * interval '1 second', 0, now(), now());
-- Values are numbered to 1000, ten of them to a group; beyond the last the first follows.
INSERT INTO item_attribute
SELECT n, :item::bigint, :seller::bigint, 1 + (:value + n - 2) % 1000, 1 + (:value + n - 2) % 1000 / 10, NULL
FROM generate_series(1, :attributes) n;
INSERT INTO item_image SELECT n, :item::bigint, :seller::bigint, md5((:noise + n)::text) FROM generate_series(1, :images) n;
UPDATE useracct SET u_balance = u_balance - 100, u_updated = now() WHERE u_id = :seller;
END;
