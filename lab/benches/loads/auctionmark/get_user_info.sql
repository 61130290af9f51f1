-- AuctionMark, GetUserInfo: a user by Zipf (who is active: see dealer() in init.sql) and, each in the published share of the
-- transactions, the latest feedback, questions without answer, items sold, items bought and items watched.
\set user 1 + (random_zipfian(1, 20000, 1.05) - 1) * 7919 % 20000
\set feedback random(1, 100)
\set comments random(1, 100)
\set sold random(1, 100)
\set bought random(1, 100)
\set watched random(1, 100)
BEGIN;
SELECT u_id, u_rating, u_created, u_balance, u_sattr0, u_sattr1, u_sattr2, u_sattr3, u_sattr4, r_name
FROM useracct JOIN region ON r_id = u_r_id WHERE u_id = :user;
\if :feedback <= 25
SELECT u_id, u_rating, u_sattr0, u_sattr1, uf_rating, uf_date, uf_sattr0
FROM useracct JOIN useracct_feedback ON uf_u_id = u_id WHERE u_id = :user ORDER BY uf_date DESC LIMIT 25;
\endif
\if :comments <= 10
SELECT i_id, i_u_id, i_name, i_current_price, i_num_bids, i_end_date, i_status, ic_id, ic_buyer_id, ic_question, ic_created
FROM item_comment JOIN item ON i_id = ic_i_id AND i_u_id = ic_u_id
WHERE ic_u_id = :user AND ic_response IS NULL AND i_status = 0 ORDER BY ic_created DESC LIMIT 25;
\endif
\if :sold <= 10
SELECT i_id, i_u_id, i_name, i_current_price, i_num_bids, i_end_date, i_status
FROM item WHERE i_u_id = :user ORDER BY i_end_date DESC LIMIT 25;
\endif
\if :bought <= 10
SELECT i_id, i_u_id, i_name, i_current_price, i_num_bids, i_end_date, i_status
FROM useracct_item JOIN item ON i_id = ui_i_id AND i_u_id = ui_i_u_id WHERE ui_u_id = :user ORDER BY i_end_date DESC LIMIT 25;
\endif
\if :watched <= 10
SELECT i_id, i_u_id, i_name, i_current_price, i_num_bids, i_end_date, i_status, uw_u_id, uw_created
FROM useracct_watch JOIN item ON i_id = uw_i_id AND i_u_id = uw_i_u_id WHERE uw_u_id = :user ORDER BY i_end_date DESC LIMIT 25;
\endif
END;
