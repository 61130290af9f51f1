-- AuctionMark: 20 000 users, 150 000 items, of which 30 000 are on offer. Tables and columns are the published ones; see ../README.md.
-- Plain SQL without commands of psql. The same data at every load, but for the dates. Keys come last, which loads faster.
--
-- Rules that the data keep and check.sql checks:
--   * money is whole cents, so that sums are exact;
--   * i_status is 0 for an item on offer, 1 for one that waits for its buyer to pay, 2 for one that is closed;
--   * what belongs to an item is numbered from 1 within it, and its key begins with the item;
--   * u_iattr0 and u_iattr1 are the balance and the rating before the first deal.
SET work_mem = '64MB';
SET maintenance_work_mem = '256MB';

-- A number in [0, 1) that depends on nothing but the row and what it is drawn for.
CREATE FUNCTION pg_temp.draw(row_id bigint, what bigint) RETURNS double precision LANGUAGE sql IMMUTABLE
    RETURN (hashint8extended(row_id, what) & 4294967295) / 4294967296.0::double precision;
-- Text of a length between two limits, 256 at most, of which a compressor saves about half.
CREATE FUNCTION pg_temp.words(row_id bigint, what bigint, low integer, high integer) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN left(encode(sha512(int8send(row_id * 64 + what)) || CASE WHEN high > 128 THEN sha512(int8send(-row_id * 64 - what))
        ELSE '' END, 'hex'), low + floor(pg_temp.draw(row_id, what) * (high - low + 1))::integer);
-- A user who deals: the k-th most active one has a share that falls with the root of k. The product scatters the active ones over the
-- table; get_user_info.sql and the others that draw users do the same.
CREATE FUNCTION pg_temp.dealer(row_id bigint, what bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN 1 + floor(20000 * pg_temp.draw(row_id, what) ^ 2)::bigint * 7919 % 20000;

CREATE TABLE region (
    r_id bigint NOT NULL,
    r_name varchar(32)
);
CREATE TABLE useracct (
    u_id bigint NOT NULL,
    u_rating bigint NOT NULL,
    u_balance bigint NOT NULL,
    u_comments integer NOT NULL DEFAULT 0,
    u_r_id bigint NOT NULL,
    u_created timestamptz,
    u_updated timestamptz,
    u_sattr0 varchar(64),
    u_sattr1 varchar(64),
    u_sattr2 varchar(64),
    u_sattr3 varchar(64),
    u_sattr4 varchar(64),
    u_sattr5 varchar(64),
    u_sattr6 varchar(64),
    u_sattr7 varchar(64),
    u_iattr0 bigint,
    u_iattr1 bigint,
    u_iattr2 bigint,
    u_iattr3 bigint,
    u_iattr4 bigint,
    u_iattr5 bigint,
    u_iattr6 bigint,
    u_iattr7 bigint
);
CREATE TABLE useracct_attributes (
    ua_id bigint NOT NULL,
    ua_u_id bigint NOT NULL,
    ua_name varchar(32) NOT NULL,
    ua_value varchar(32) NOT NULL,
    u_created timestamptz
);
CREATE TABLE useracct_feedback (
    uf_u_id bigint NOT NULL,
    uf_i_id bigint NOT NULL,
    uf_i_u_id bigint NOT NULL,
    uf_from_id bigint NOT NULL,
    uf_rating integer NOT NULL,
    uf_date timestamptz,
    uf_sattr0 varchar(80) NOT NULL,
    CHECK (uf_u_id <> uf_from_id)
);
CREATE TABLE useracct_item (
    ui_u_id bigint NOT NULL,
    ui_i_id bigint NOT NULL,
    ui_i_u_id bigint NOT NULL,
    ui_ip_id bigint,
    ui_ip_ib_id bigint,
    ui_ip_ib_i_id bigint,
    ui_ip_ib_u_id bigint,
    ui_created timestamptz
);
CREATE TABLE useracct_watch (
    uw_u_id bigint NOT NULL,
    uw_i_id bigint NOT NULL,
    uw_i_u_id bigint NOT NULL,
    uw_created timestamptz
);
CREATE TABLE category (
    c_id bigint NOT NULL,
    c_name varchar(50),
    c_parent_id bigint
);
CREATE TABLE global_attribute_group (
    gag_id bigint NOT NULL,
    gag_c_id bigint NOT NULL,
    gag_name varchar(100) NOT NULL
);
CREATE TABLE global_attribute_value (
    gav_id bigint NOT NULL,
    gav_gag_id bigint NOT NULL,
    gav_name varchar(100) NOT NULL
);
CREATE SEQUENCE item_ids START 150001;
CREATE TABLE item (
    i_id bigint NOT NULL,
    i_u_id bigint NOT NULL,
    i_c_id bigint NOT NULL,
    i_name varchar(100),
    i_description varchar(1024),
    i_user_attributes varchar(255),
    i_initial_price bigint NOT NULL,
    i_current_price bigint NOT NULL,
    i_num_bids bigint NOT NULL,
    i_num_images bigint NOT NULL,
    i_num_global_attrs bigint NOT NULL,
    i_num_comments bigint NOT NULL,
    i_start_date timestamptz,
    i_end_date timestamptz,
    i_status integer NOT NULL DEFAULT 0,
    i_created timestamptz,
    i_updated timestamptz,
    i_iattr0 bigint,
    i_iattr1 bigint,
    i_iattr2 bigint,
    i_iattr3 bigint,
    i_iattr4 bigint,
    i_iattr5 bigint,
    i_iattr6 bigint,
    i_iattr7 bigint
);
CREATE TABLE item_attribute (
    ia_id bigint NOT NULL,
    ia_i_id bigint NOT NULL,
    ia_u_id bigint NOT NULL,
    ia_gav_id bigint NOT NULL,
    ia_gag_id bigint NOT NULL,
    ia_sattr0 varchar(64)
);
CREATE TABLE item_image (
    ii_id bigint NOT NULL,
    ii_i_id bigint NOT NULL,
    ii_u_id bigint NOT NULL,
    ii_sattr0 varchar(128) NOT NULL
);
CREATE TABLE item_comment (
    ic_id bigint NOT NULL,
    ic_i_id bigint NOT NULL,
    ic_u_id bigint NOT NULL,
    ic_buyer_id bigint NOT NULL,
    ic_question varchar(128) NOT NULL,
    ic_response varchar(128),
    ic_created timestamptz,
    ic_updated timestamptz
);
CREATE TABLE item_bid (
    ib_id bigint NOT NULL,
    ib_i_id bigint NOT NULL,
    ib_u_id bigint NOT NULL,
    ib_buyer_id bigint NOT NULL,
    ib_bid bigint NOT NULL,
    ib_max_bid bigint NOT NULL,
    ib_created timestamptz,
    ib_updated timestamptz
);
CREATE TABLE item_max_bid (
    imb_i_id bigint NOT NULL,
    imb_u_id bigint NOT NULL,
    imb_ib_id bigint NOT NULL,
    imb_ib_i_id bigint NOT NULL,
    imb_ib_u_id bigint NOT NULL,
    imb_created timestamptz,
    imb_updated timestamptz
);
CREATE SEQUENCE purchase_ids;
CREATE TABLE item_purchase (
    ip_id bigint NOT NULL,
    ip_ib_id bigint NOT NULL,
    ip_ib_i_id bigint NOT NULL,
    ip_ib_u_id bigint NOT NULL,
    ip_date timestamptz
);

INSERT INTO region SELECT id, pg_temp.words(id, 1, 6, 32) FROM generate_series(1, 75) id;
-- Three levels: 10 categories, 90 below them, 900 below those.
INSERT INTO category SELECT id, pg_temp.words(id, 1, 6, 50), CASE WHEN id >= 10 THEN id / 10 END FROM generate_series(1, 999) id;
INSERT INTO global_attribute_group SELECT id, 1 + id * 7 % 999, pg_temp.words(id, 2, 6, 50) FROM generate_series(1, 100) id;
INSERT INTO global_attribute_value SELECT id, 1 + (id - 1) / 10, pg_temp.words(id, 3, 6, 50) FROM generate_series(1, 1000) id;

-- Items 1 to 90 000 are closed and paid; 90 001 to 120 000 are over, the buyers have yet to pay; the rest ends within the hour after
-- the load. What nobody bid for is closed when it is over. Most items get few bids and few get many, 500 at most.
INSERT INTO item
SELECT id, pg_temp.dealer(id, 1), 100 + floor(pg_temp.draw(id, 2) * 900)::bigint,
    pg_temp.words(id, 3, 16, 100), pg_temp.words(id, 4, 50, 255), pg_temp.words(id, 5, 20, 128),
    initial, initial + greatest(bids - 1, 0) * greatest(initial / 40, 1), bids,
    1 + floor(pg_temp.draw(id, 6) ^ 2 * 4)::bigint, 1 + floor(pg_temp.draw(id, 7) ^ 2 * 5)::bigint,
    floor(pg_temp.draw(id, 8) ^ 2 * 4)::bigint, ends - interval '1 hour', ends,
    CASE WHEN id > 120000 THEN 0 WHEN id > 90000 AND bids > 0 THEN 1 ELSE 2 END, ends - interval '1 hour', ends - interval '1 hour'
FROM generate_series(1, 150000) id
CROSS JOIN LATERAL (
    SELECT floor(100 * 1000 ^ pg_temp.draw(id, 9))::bigint AS initial,
        least(floor(5 / sqrt(1 - pg_temp.draw(id, 10))) - 5, 500)::bigint AS bids,
        now() + CASE WHEN id > 120000 THEN pg_temp.draw(id, 11) ELSE (id - 120001) / 7200.0 END * interval '1 hour' AS ends
    OFFSET 0
) drawn
ORDER BY id;
INSERT INTO item_attribute
SELECT n, i_id, i_u_id, value, 1 + (value - 1) / 10, NULL
FROM item CROSS JOIN generate_series(1, i_num_global_attrs) n
CROSS JOIN LATERAL (SELECT 1 + floor(pg_temp.draw(i_id * 16 + n, 12) * 1000)::bigint AS value OFFSET 0) drawn
ORDER BY i_id, n;
INSERT INTO item_image
SELECT n, i_id, i_u_id, pg_temp.words(i_id * 16 + n, 13, 20, 60) FROM item CROSS JOIN generate_series(1, i_num_images) n
ORDER BY i_id, n;
-- Bidders and those who ask are never the seller: who would be one leaves it to the user with the next number.
INSERT INTO item_comment
SELECT n, i_id, i_u_id, CASE WHEN asks = i_u_id THEN asks % 20000 + 1 ELSE asks END, pg_temp.words(i_id * 16 + n, 14, 10, 128),
    CASE WHEN pg_temp.draw(i_id * 16 + n, 15) < 0.7 THEN pg_temp.words(i_id * 16 + n, 16, 10, 128) END,
    i_start_date + n * interval '1 minute', i_start_date + n * interval '1 minute'
FROM item CROSS JOIN generate_series(1, i_num_comments) n
CROSS JOIN LATERAL (SELECT pg_temp.dealer(i_id * 16 + n, 17) AS asks OFFSET 0) drawn
ORDER BY i_id, n;
-- The last bid is the highest, and only it has room left up to what its bidder would pay.
INSERT INTO item_bid
SELECT n, i_id, i_u_id, CASE WHEN bids = i_u_id THEN bids % 20000 + 1 ELSE bids END, price,
    price + CASE WHEN n = i_num_bids THEN floor(pg_temp.draw(i_id, 18) * i_initial_price / 5)::bigint ELSE 0 END,
    i_start_date + n * interval '1 second', i_start_date + n * interval '1 second'
FROM item CROSS JOIN generate_series(1, i_num_bids) n
CROSS JOIN LATERAL (
    SELECT pg_temp.dealer(i_id * 512 + n, 19) AS bids, i_initial_price + (n - 1) * greatest(i_initial_price / 40, 1) AS price OFFSET 0
) drawn
ORDER BY i_id, n;
INSERT INTO item_max_bid
SELECT i_id, i_u_id, i_num_bids, i_id, i_u_id, i_start_date, i_start_date FROM item WHERE i_num_bids > 0 ORDER BY i_id;
INSERT INTO item_purchase
SELECT nextval('purchase_ids'), i_num_bids, i_id, i_u_id, i_end_date FROM item WHERE i_status = 2 AND i_num_bids > 0 ORDER BY i_id;
ANALYZE item, item_bid, item_max_bid, item_purchase;
INSERT INTO useracct_item
SELECT ib_buyer_id, i_id, i_u_id, ip_id, ip_ib_id, ip_ib_i_id, ip_ib_u_id, i_end_date
FROM item JOIN item_bid ON ib_i_id = i_id AND ib_id = i_num_bids LEFT JOIN item_purchase ON ip_ib_i_id = i_id
WHERE i_status > 0 ORDER BY i_id;
INSERT INTO useracct_watch
SELECT watches, i_id, i_u_id, i_start_date
FROM (SELECT DISTINCT pg_temp.dealer(id, 20) AS watches, 1 + floor(pg_temp.draw(id, 21) * 150000)::bigint AS watched
    FROM generate_series(1, 100000) id) drawn
JOIN item ON i_id = watched
ORDER BY watched, watches;
-- A quarter of the buyers and a tenth of the sellers have said what they think; the others may do so during a run.
INSERT INTO useracct_feedback
SELECT CASE side WHEN 1 THEN ui_i_u_id ELSE ui_u_id END, ui_i_id, ui_i_u_id, CASE side WHEN 1 THEN ui_u_id ELSE ui_i_u_id END,
    floor(pg_temp.draw(ui_i_id * 2 + side, 22) * 3)::integer - 1, ui_created, pg_temp.words(ui_i_id * 2 + side, 23, 10, 80)
FROM useracct_item CROSS JOIN generate_series(1, 2) side
WHERE ui_ip_id IS NOT NULL AND pg_temp.draw(ui_i_id * 2 + side, 24) < CASE side WHEN 1 THEN 0.25 ELSE 0.1 END
ORDER BY ui_i_id;
INSERT INTO useracct
SELECT id, rating + coalesce(feedback, 0), balance + coalesce(earned, 0) - coalesce(spent, 0) - coalesce(listed, 0) * 100,
    coalesce(asked, 0), 1 + floor(pg_temp.draw(id, 25) * 75)::bigint, now() - interval '1 year', now(),
    pg_temp.words(id, 26, 16, 64), pg_temp.words(id, 27, 16, 64), pg_temp.words(id, 28, 16, 64), pg_temp.words(id, 29, 16, 64),
    pg_temp.words(id, 30, 16, 64), pg_temp.words(id, 31, 16, 64), pg_temp.words(id, 32, 16, 64), pg_temp.words(id, 33, 16, 64),
    balance, rating
FROM generate_series(1, 20000) id
CROSS JOIN LATERAL (
    SELECT 100000 + floor(pg_temp.draw(id, 34) * 9900000)::bigint AS balance, floor(pg_temp.draw(id, 35) * 10000)::bigint AS rating
    OFFSET 0
) drawn
LEFT JOIN (SELECT uf_u_id, sum(uf_rating)::bigint AS feedback FROM useracct_feedback GROUP BY 1) f ON uf_u_id = id
LEFT JOIN (SELECT i_u_id, count(*) AS listed, sum(i_current_price) FILTER (WHERE i_status = 2 AND i_num_bids > 0)::bigint AS earned
    FROM item GROUP BY 1) s ON i_u_id = id
LEFT JOIN (SELECT ui_u_id, sum(i_current_price)::bigint AS spent FROM useracct_item JOIN item ON i_id = ui_i_id
    WHERE ui_ip_id IS NOT NULL GROUP BY 1) b ON ui_u_id = id
LEFT JOIN (SELECT ic_u_id, count(*) AS asked FROM item_comment WHERE ic_response IS NULL GROUP BY 1) c ON ic_u_id = id
ORDER BY id;
INSERT INTO useracct_attributes
SELECT n, id, pg_temp.words(id * 8 + n, 36, 5, 32), pg_temp.words(id * 8 + n, 37, 5, 32), now()
FROM generate_series(1, 20000) id CROSS JOIN LATERAL generate_series(1, floor(pg_temp.draw(id, 38) * 6)::bigint) n;

ALTER TABLE region ADD PRIMARY KEY (r_id);
ALTER TABLE useracct ADD PRIMARY KEY (u_id);
ALTER TABLE useracct_attributes ADD PRIMARY KEY (ua_u_id, ua_id);
ALTER TABLE category ADD PRIMARY KEY (c_id);
ALTER TABLE global_attribute_group ADD PRIMARY KEY (gag_id);
ALTER TABLE global_attribute_value ADD PRIMARY KEY (gav_id, gav_gag_id);
ALTER TABLE item ADD PRIMARY KEY (i_id, i_u_id);
ALTER TABLE item_attribute ADD PRIMARY KEY (ia_i_id, ia_u_id, ia_id);
ALTER TABLE item_image ADD PRIMARY KEY (ii_i_id, ii_u_id, ii_id);
ALTER TABLE item_comment ADD PRIMARY KEY (ic_i_id, ic_u_id, ic_id);
ALTER TABLE item_bid ADD PRIMARY KEY (ib_i_id, ib_u_id, ib_id);
ALTER TABLE item_max_bid ADD PRIMARY KEY (imb_i_id, imb_u_id);
ALTER TABLE item_purchase ADD PRIMARY KEY (ip_ib_i_id, ip_ib_u_id, ip_ib_id, ip_id);
ALTER TABLE useracct_feedback ADD PRIMARY KEY (uf_u_id, uf_i_id, uf_i_u_id, uf_from_id);
ALTER TABLE useracct_item ADD PRIMARY KEY (ui_u_id, ui_i_id, ui_i_u_id);
ALTER TABLE useracct_watch ADD PRIMARY KEY (uw_u_id, uw_i_id, uw_i_u_id);

CREATE INDEX category_parent ON category (c_parent_id);
CREATE INDEX item_seller ON item (i_u_id, i_end_date);
CREATE INDEX item_on_offer ON item (i_end_date, i_id) WHERE i_status = 0;
CREATE INDEX item_to_pay ON item (i_id) WHERE i_status = 1;
CREATE INDEX item_comment_unanswered ON item_comment (ic_u_id, ic_created) WHERE ic_response IS NULL;

ALTER TABLE useracct ADD FOREIGN KEY (u_r_id) REFERENCES region;
ALTER TABLE useracct_attributes ADD FOREIGN KEY (ua_u_id) REFERENCES useracct;
ALTER TABLE category ADD FOREIGN KEY (c_parent_id) REFERENCES category;
ALTER TABLE global_attribute_group ADD FOREIGN KEY (gag_c_id) REFERENCES category;
ALTER TABLE global_attribute_value ADD FOREIGN KEY (gav_gag_id) REFERENCES global_attribute_group;
ALTER TABLE item ADD FOREIGN KEY (i_u_id) REFERENCES useracct, ADD FOREIGN KEY (i_c_id) REFERENCES category;
ALTER TABLE item_attribute ADD FOREIGN KEY (ia_i_id, ia_u_id) REFERENCES item,
    ADD FOREIGN KEY (ia_gav_id, ia_gag_id) REFERENCES global_attribute_value;
ALTER TABLE item_image ADD FOREIGN KEY (ii_i_id, ii_u_id) REFERENCES item;
ALTER TABLE item_comment ADD FOREIGN KEY (ic_i_id, ic_u_id) REFERENCES item, ADD FOREIGN KEY (ic_buyer_id) REFERENCES useracct;
ALTER TABLE item_bid ADD FOREIGN KEY (ib_i_id, ib_u_id) REFERENCES item, ADD FOREIGN KEY (ib_buyer_id) REFERENCES useracct;
ALTER TABLE item_max_bid ADD FOREIGN KEY (imb_i_id, imb_u_id) REFERENCES item,
    ADD FOREIGN KEY (imb_ib_i_id, imb_ib_u_id, imb_ib_id) REFERENCES item_bid;
ALTER TABLE item_purchase ADD FOREIGN KEY (ip_ib_i_id, ip_ib_u_id, ip_ib_id) REFERENCES item_bid;
ALTER TABLE useracct_feedback ADD FOREIGN KEY (uf_u_id) REFERENCES useracct, ADD FOREIGN KEY (uf_from_id) REFERENCES useracct,
    ADD FOREIGN KEY (uf_i_id, uf_i_u_id) REFERENCES item;
ALTER TABLE useracct_item ADD FOREIGN KEY (ui_u_id) REFERENCES useracct, ADD FOREIGN KEY (ui_i_id, ui_i_u_id) REFERENCES item,
    ADD FOREIGN KEY (ui_ip_ib_i_id, ui_ip_ib_u_id, ui_ip_ib_id, ui_ip_id) REFERENCES item_purchase;
ALTER TABLE useracct_watch ADD FOREIGN KEY (uw_u_id) REFERENCES useracct, ADD FOREIGN KEY (uw_i_id, uw_i_u_id) REFERENCES item;
