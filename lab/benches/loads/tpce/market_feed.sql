-- TPC-E, Market-Feed: new prices of twenty securities, and limit orders that wait for them go to the market.
--
-- Locks in all scripts: prices by rising symbol, then trades and what belongs to each by rising number, then an account with its holdings, then
-- its broker. A lock is FOR NO KEY UPDATE, as that of an UPDATE of these columns: the checks of foreign keys do not wait for it. Only who has
-- the price of a security sends its limit orders to the market.
\set first random(0, 684)
\set step random(1, 136)
\set quantity 100 << random(0, 3)
\set noise random(1, 1000000000)
BEGIN;
SELECT count(*) AS quoted
FROM (SELECT FROM last_trade WHERE lt_s_symb = ANY (securities(:first, :step)) ORDER BY lt_s_symb FOR NO KEY UPDATE) l;
-- A price between 20.00 and 30.00, whatever the last one was.
UPDATE last_trade
SET lt_price = 2000 + (hashtextextended(lt_s_symb, :noise) & 1023) * 1000 / 1023, lt_vol = lt_vol + :quantity, lt_dts = localtimestamp
WHERE lt_s_symb = ANY (securities(:first, :step));
WITH due AS (
    DELETE FROM trade_request USING last_trade
    WHERE tr_s_symb = ANY (securities(:first, :step)) AND lt_s_symb = tr_s_symb
        AND CASE tr_tt_id WHEN 'TLS' THEN lt_price >= tr_bid_price ELSE lt_price <= tr_bid_price END
    RETURNING tr_t_id
), sent AS (
    INSERT INTO market_queue SELECT tr_t_id FROM due
), noted AS (
    INSERT INTO trade_history SELECT tr_t_id, localtimestamp, 'SBMT' FROM due
)
UPDATE trade SET t_st_id = 'SBMT', t_dts = localtimestamp FROM due WHERE t_id = tr_t_id;
END;
