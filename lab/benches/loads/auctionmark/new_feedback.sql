-- AuctionMark, NewFeedback: the buyer says of the seller, or the seller of the buyer, whether the purchase went well, once.
\set start random(1, 120000)
\set side random(1, 2)
\set rating random(-1, 1)
\set noise random(1, 1000000000)
BEGIN;
SELECT count(*) AS found, coalesce(max(ib_i_id), 0) AS item, coalesce(max(ib_u_id), 0) AS seller, coalesce(max(ib_buyer_id), 0) AS buyer
FROM (SELECT ip_ib_i_id, ip_ib_u_id, ip_ib_id FROM item_purchase WHERE ip_ib_i_id >= :start ORDER BY ip_ib_i_id LIMIT 1) p
JOIN item_bid ON ib_i_id = ip_ib_i_id AND ib_u_id = ip_ib_u_id AND ib_id = ip_ib_id \gset
\if :found = 1
\set about case when :side = 1 then :seller else :buyer end
\set author case when :side = 1 then :buyer else :seller end
SELECT count(*) AS earlier FROM useracct_feedback
WHERE uf_u_id = :about AND uf_i_id = :item AND uf_i_u_id = :seller AND uf_from_id = :author \gset
\if :earlier = 0
-- Another client may have said it since.
WITH said AS (
    INSERT INTO useracct_feedback VALUES (:about, :item, :seller, :author, :rating, now(), repeat(md5(:noise::text), 2))
    ON CONFLICT DO NOTHING RETURNING uf_rating
)
SELECT count(*) AS said FROM said \gset
\if :said = 1
UPDATE useracct SET u_rating = u_rating + :rating, u_updated = now() WHERE u_id = :about;
\endif
\endif
\endif
END;
