-- AuctionMark, NewCommentResponse: a seller, by Zipf, answers the oldest question; who has none leaves it to the next one who has.
\set user 1 + (random_zipfian(1, 20000, 1.05) - 1) * 7919 % 20000
\set noise random(1, 1000000000)
BEGIN;
SELECT count(*) AS found, coalesce(max(ic_id), 0) AS comment, coalesce(max(ic_i_id), 0) AS item, coalesce(max(ic_u_id), 0) AS seller
FROM (SELECT ic_id, ic_i_id, ic_u_id FROM item_comment WHERE ic_response IS NULL AND ic_u_id >= :user
    ORDER BY ic_u_id, ic_created LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) c \gset
\if :found = 1
UPDATE item_comment SET ic_response = repeat(md5(:noise::text), 2), ic_updated = now()
WHERE ic_i_id = :item AND ic_u_id = :seller AND ic_id = :comment;
UPDATE useracct SET u_comments = u_comments - 1, u_updated = now() WHERE u_id = :seller;
\endif
END;
