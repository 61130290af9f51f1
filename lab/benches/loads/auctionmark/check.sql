-- new items that are missing of what 10 transactions in 101 bring
SELECT greatest(floor(:transactions * 10 / 101.0 - 2 * sqrt(:transactions)) - (count(*) - 150000), 0) FROM item;
-- items whose number of bids is not that of their bids
SELECT count(*) FROM item LEFT JOIN (SELECT ib_i_id, count(*) AS bids, max(ib_id) AS last FROM item_bid GROUP BY 1) b ON ib_i_id = i_id
WHERE i_num_bids <> coalesce(bids, 0) OR i_num_bids <> coalesce(last, 0);
-- items with bids of which none is marked as the highest, or without bids of which one is
SELECT count(*) FROM item LEFT JOIN item_max_bid ON imb_i_id = i_id AND imb_u_id = i_u_id WHERE (i_num_bids > 0) <> (imb_i_id IS NOT NULL);
-- items whose marked bid is not the highest in bid and limit, or is not what the item costs
SELECT count(*) FROM item_max_bid
LEFT JOIN (SELECT ib_i_id, max(ib_bid) AS bid, max(ib_max_bid) AS top FROM item_bid GROUP BY 1) b ON b.ib_i_id = imb_i_id
LEFT JOIN item_bid m ON m.ib_i_id = imb_ib_i_id AND m.ib_u_id = imb_ib_u_id AND m.ib_id = imb_ib_id
LEFT JOIN item ON i_id = imb_i_id
WHERE (m.ib_i_id, m.ib_bid, m.ib_max_bid, m.ib_bid) IS DISTINCT FROM (imb_i_id, bid, top, i_current_price);
-- items whose purchases are not as many as their status says: one if closed with bids, or else none
SELECT count(*) FROM item LEFT JOIN (SELECT ip_ib_i_id, count(*) AS purchases FROM item_purchase GROUP BY 1) p ON ip_ib_i_id = i_id
WHERE coalesce(purchases, 0) <> CASE WHEN i_status = 2 AND i_num_bids > 0 THEN 1 ELSE 0 END;
-- purchases of another bid than the highest
SELECT count(*) FROM item_purchase LEFT JOIN item_max_bid ON imb_i_id = ip_ib_i_id AND imb_u_id = ip_ib_u_id
WHERE ip_ib_id IS DISTINCT FROM imb_ib_id;
-- items that are over with bids and not with exactly the highest bidder, or on offer or without bids and with somebody
SELECT count(*) FROM item LEFT JOIN item_max_bid ON imb_i_id = i_id AND imb_u_id = i_u_id
LEFT JOIN item_bid ON ib_i_id = imb_ib_i_id AND ib_u_id = imb_ib_u_id AND ib_id = imb_ib_id
LEFT JOIN (SELECT ui_i_id, count(*) AS owners, max(ui_u_id) AS owner FROM useracct_item GROUP BY 1) o ON ui_i_id = i_id
WHERE coalesce(owners, 0) <> CASE WHEN i_status > 0 AND i_num_bids > 0 THEN 1 ELSE 0 END OR owner <> ib_buyer_id;
-- items of buyers whose purchase is not that of the item
SELECT count(*) FROM useracct_item LEFT JOIN item_purchase ON ip_ib_i_id = ui_i_id WHERE ui_ip_id IS DISTINCT FROM ip_id;
-- items whose number of comments is not that of their comments
SELECT count(*) FROM item LEFT JOIN (SELECT ic_i_id, count(*) AS comments, max(ic_id) AS last FROM item_comment GROUP BY 1) c
    ON ic_i_id = i_id
WHERE i_num_comments <> coalesce(comments, 0) OR i_num_comments <> coalesce(last, 0);
-- users whose number of questions without answer is not that of the comments on their items
SELECT count(*) FROM useracct LEFT JOIN (SELECT ic_u_id, count(*) AS asked FROM item_comment WHERE ic_response IS NULL GROUP BY 1) c
    ON ic_u_id = u_id
WHERE u_comments <> coalesce(asked, 0);
-- items whose number of images or of attributes is not that of their images or attributes
SELECT count(*) FROM item
LEFT JOIN (SELECT ii_i_id, count(*) AS images FROM item_image GROUP BY 1) i ON ii_i_id = i_id
LEFT JOIN (SELECT ia_i_id, count(*) AS attributes FROM item_attribute GROUP BY 1) a ON ia_i_id = i_id
WHERE i_num_images <> coalesce(images, 0) OR i_num_global_attrs <> coalesce(attributes, 0);
-- users whose balance is not the first one and what they sold, less what they bought and the fees
SELECT count(*) FROM useracct
LEFT JOIN (SELECT i_u_id, count(*) AS listed FROM item GROUP BY 1) l ON i_u_id = u_id
LEFT JOIN (SELECT ip_ib_u_id, sum(ib_bid) AS earned FROM item_purchase
    JOIN item_bid ON ib_i_id = ip_ib_i_id AND ib_u_id = ip_ib_u_id AND ib_id = ip_ib_id GROUP BY 1) s ON ip_ib_u_id = u_id
LEFT JOIN (SELECT ib_buyer_id, sum(ib_bid) AS spent FROM item_purchase
    JOIN item_bid ON ib_i_id = ip_ib_i_id AND ib_u_id = ip_ib_u_id AND ib_id = ip_ib_id GROUP BY 1) b ON ib_buyer_id = u_id
WHERE u_balance <> u_iattr0 + coalesce(earned, 0) - coalesce(spent, 0) - coalesce(listed, 0) * 100;
-- users whose rating is not the first one and what was said of them
SELECT count(*) FROM useracct LEFT JOIN (SELECT uf_u_id, sum(uf_rating) AS said FROM useracct_feedback GROUP BY 1) f ON uf_u_id = u_id
WHERE u_rating <> u_iattr1 + coalesce(said, 0);
-- feedback that is not between the seller and the buyer of a purchase
SELECT count(*) FROM useracct_feedback LEFT JOIN useracct_item ON ui_i_id = uf_i_id AND ui_ip_id IS NOT NULL
WHERE ui_i_id IS NULL OR uf_u_id + uf_from_id <> ui_u_id + ui_i_u_id OR uf_i_u_id NOT IN (uf_u_id, uf_from_id);
-- bids, of every 50th item, that the key does not find one by one
SELECT count(*) FROM (SELECT ib_i_id, ib_u_id, ib_id FROM item_bid WHERE ib_i_id % 50 = 7 AND ib_bid > 0) b
WHERE 1 <> (SELECT count(*) FROM item_bid k WHERE k.ib_i_id = b.ib_i_id AND k.ib_u_id = b.ib_u_id AND k.ib_id = b.ib_id);
-- items on offer or to pay, of every 50th seller, that the index of sellers does not find
SELECT count(*) FROM (SELECT i_id, i_u_id, i_end_date FROM item WHERE i_status < 2 AND i_u_id % 50 = 7) i
WHERE 1 <> (SELECT count(*) FROM item k WHERE k.i_u_id = i.i_u_id AND k.i_end_date = i.i_end_date AND k.i_id + 0 = i.i_id);
