-- TPC-E-like: 1000 customers, 685 securities, 460 800 trades of eight days. Tables and columns are the published ones; see ../README.md.
-- Plain SQL without commands of psql. The same data at every load. Keys come last, which loads faster.
--
-- Rules that the data keep and check.sql checks:
--   * money is whole cents and rates are ten-thousandths, so that sums are exact;
--   * t_st_id is PNDG for a limit order that waits for its price, SBMT for one that the market has in hand, CMPT for a completed trade;
--   * what was PNDG has a row in trade_request, what is SBMT one in market_queue;
--   * a holding is what is left of the trade that opened it, less than 0 for what was sold short;
--   * ca_first_bal is the balance before the first trade.
SET work_mem = '64MB';
SET maintenance_work_mem = '256MB';

-- A number in [0, 1) that depends on nothing but the row and what it is drawn for.
CREATE FUNCTION pg_temp.draw(row_id bigint, what bigint) RETURNS double precision LANGUAGE sql IMMUTABLE
    RETURN (hashint8extended(row_id, what) & 4294967295) / 4294967296.0::double precision;
-- Text of a length between two limits, 256 at most, of which a compressor saves about half.
CREATE FUNCTION pg_temp.words(row_id bigint, what bigint, low integer, high integer) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN left(encode(sha512(int8send(row_id * 64 + what)) || CASE WHEN high > 128 THEN sha512(int8send(-row_id * 64 - what))
        ELSE '' END, 'hex'), low + floor(pg_temp.draw(row_id, what) * (high - low + 1))::integer);
-- A customer who trades, by rank from 0: the lowest 200 have a tenth of all weight, the next 600 six tenths, the last 200 three tenths, and
-- within a tier weight grows steadily, from 0.6 to 1.4, from 1.4 to 2.6, from 2.6 to 3.4. The scripts draw customers by the same law.
CREATE FUNCTION pg_temp.ranked(drawn double precision) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN least(floor(CASE WHEN drawn < 0.1 THEN sqrt(22500 + 1000000 * drawn) - 150
        WHEN drawn < 0.7 THEN sqrt(290000 + 2000000 * drawn) - 500 ELSE sqrt(1000000 * drawn - 277500) + 150 END), 999)::bigint;
-- How many accounts the customer of a rank has: 1 to 4, 2 to 8 or 5 to 10. Account n of customer c is c * 10 + n, n from 0.
CREATE FUNCTION pg_temp.accounts(rank bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN rank < 200 THEN 1 + rank % 4 WHEN rank < 800 THEN 2 + rank % 7 ELSE 5 + rank % 6 END;

-- What the scripts use: the symbol of a security, twenty securities, the time of a loaded trade, and twenty trades of the published law
-- NURand, in which numbers with certain bits are drawn more often.
CREATE FUNCTION symbol(number bigint) RETURNS text LANGUAGE sql IMMUTABLE RETURN 'SY' || lpad(number::text, 4, '0');
CREATE FUNCTION securities(first bigint, step bigint) RETURNS text[] LANGUAGE sql IMMUTABLE
    RETURN ARRAY(SELECT symbol(1 + (first + n * step) % 685) FROM generate_series(0, 19) n);
CREATE FUNCTION traded(trade bigint) RETURNS timestamp LANGUAGE sql IMMUTABLE
    RETURN timestamp '2005-01-03 09:00:00' + ((trade - 1) / 57600 + (trade - 1) / 288000 * 2) * interval '1 day'
        + (trade - 1) % 57600 * interval '0.5 seconds';
CREATE FUNCTION trades(noise bigint) RETURNS bigint[] LANGUAGE sql IMMUTABLE
    RETURN ARRAY(SELECT 1 + ((hashint8extended(n, noise) & 4294967295) % 460800 | ((hashint8extended(n, -noise) & 2047) << 7)) % 460800
        FROM generate_series(1, 20) n);

CREATE TABLE zip_code (
    zc_code varchar(12) NOT NULL,
    zc_town varchar(80) NOT NULL,
    zc_div varchar(80) NOT NULL
);
CREATE TABLE address (
    ad_id bigint NOT NULL,
    ad_line1 varchar(80),
    ad_line2 varchar(80),
    ad_zc_code varchar(12) NOT NULL,
    ad_ctry varchar(80)
);
CREATE TABLE status_type (
    st_id char(4) NOT NULL,
    st_name varchar(10) NOT NULL
);
CREATE TABLE trade_type (
    tt_id char(3) NOT NULL,
    tt_name varchar(12) NOT NULL,
    tt_is_sell integer NOT NULL,
    tt_is_mrkt integer NOT NULL
);
CREATE TABLE taxrate (
    tx_id varchar(4) NOT NULL,
    tx_name varchar(50) NOT NULL,
    tx_rate bigint NOT NULL
);
CREATE TABLE sector (
    sc_id bigint NOT NULL,
    sc_name varchar(30) NOT NULL
);
CREATE TABLE industry (
    in_id bigint NOT NULL,
    in_name varchar(50) NOT NULL,
    in_sc_id bigint NOT NULL
);
CREATE TABLE exchange (
    ex_id bigint NOT NULL,
    ex_name varchar(100) NOT NULL,
    ex_num_symb bigint NOT NULL,
    ex_open bigint NOT NULL,
    ex_close bigint NOT NULL,
    ex_desc varchar(150),
    ex_ad_id bigint NOT NULL
);
CREATE TABLE company (
    co_id bigint NOT NULL,
    co_st_id char(4) NOT NULL,
    co_name varchar(60) NOT NULL,
    co_in_id bigint NOT NULL,
    co_sp_rate char(4) NOT NULL,
    co_ceo varchar(46) NOT NULL,
    co_ad_id bigint NOT NULL,
    co_desc varchar(150) NOT NULL,
    co_open_date date NOT NULL
);
CREATE TABLE company_competitor (
    cp_co_id bigint NOT NULL,
    cp_comp_co_id bigint NOT NULL,
    cp_in_id bigint NOT NULL
);
CREATE TABLE security (
    s_symb varchar(15) NOT NULL,
    s_issue char(6) NOT NULL,
    s_st_id char(4) NOT NULL,
    s_name varchar(70) NOT NULL,
    s_ex_id bigint NOT NULL,
    s_co_id bigint NOT NULL,
    s_num_out bigint NOT NULL,
    s_start_date date NOT NULL,
    s_exch_date date NOT NULL,
    s_pe bigint NOT NULL,
    s_52wk_high bigint NOT NULL,
    s_52wk_high_date date NOT NULL,
    s_52wk_low bigint NOT NULL,
    s_52wk_low_date date NOT NULL,
    s_dividend bigint NOT NULL,
    s_yield bigint NOT NULL
);
CREATE TABLE daily_market (
    dm_s_symb varchar(15) NOT NULL,
    dm_date date NOT NULL,
    dm_close integer NOT NULL,
    dm_high integer NOT NULL,
    dm_low integer NOT NULL,
    dm_vol bigint NOT NULL
);
CREATE TABLE financial (
    fi_co_id bigint NOT NULL,
    fi_year integer NOT NULL,
    fi_qtr integer NOT NULL,
    fi_qtr_start_date date NOT NULL,
    fi_revenue bigint NOT NULL,
    fi_net_earn bigint NOT NULL,
    fi_basic_eps bigint NOT NULL,
    fi_dilut_eps bigint NOT NULL,
    fi_margin bigint NOT NULL,
    fi_inventory bigint NOT NULL,
    fi_assets bigint NOT NULL,
    fi_liability bigint NOT NULL,
    fi_out_basic bigint NOT NULL,
    fi_out_dilut bigint NOT NULL
);
CREATE TABLE last_trade (
    lt_s_symb varchar(15) NOT NULL,
    lt_dts timestamp NOT NULL,
    lt_price bigint NOT NULL,
    lt_open_price bigint NOT NULL,
    lt_vol bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE news_item (
    ni_id bigint NOT NULL,
    ni_headline varchar(80) NOT NULL,
    ni_summary varchar(255) NOT NULL,
    ni_item text NOT NULL,
    ni_dts timestamp NOT NULL,
    ni_source varchar(30) NOT NULL,
    ni_author varchar(30)
);
CREATE TABLE news_xref (
    nx_ni_id bigint NOT NULL,
    nx_co_id bigint NOT NULL
);
CREATE TABLE customer (
    c_id bigint NOT NULL,
    c_tax_id varchar(20) NOT NULL,
    c_st_id char(4) NOT NULL,
    c_l_name varchar(25) NOT NULL,
    c_f_name varchar(20) NOT NULL,
    c_m_name char(1),
    c_gndr char(1),
    c_tier integer NOT NULL,
    c_dob date NOT NULL,
    c_ad_id bigint NOT NULL,
    c_phone_1 varchar(30),
    c_phone_2 varchar(30),
    c_phone_3 varchar(30),
    c_email_1 varchar(50),
    c_email_2 varchar(50)
);
CREATE TABLE customer_taxrate (
    cx_tx_id varchar(4) NOT NULL,
    cx_c_id bigint NOT NULL
);
CREATE TABLE broker (
    b_id bigint NOT NULL,
    b_st_id char(4) NOT NULL,
    b_name varchar(49) NOT NULL,
    b_num_trades bigint NOT NULL,
    b_comm_total bigint NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE customer_account (
    ca_id bigint NOT NULL,
    ca_b_id bigint NOT NULL,
    ca_c_id bigint NOT NULL,
    ca_name varchar(50),
    ca_tax_st integer NOT NULL,
    ca_bal bigint NOT NULL,
    ca_first_bal bigint NOT NULL
) WITH (fillfactor = 90);
CREATE TABLE account_permission (
    ap_ca_id bigint NOT NULL,
    ap_acl char(4) NOT NULL,
    ap_tax_id varchar(20) NOT NULL,
    ap_l_name varchar(25) NOT NULL,
    ap_f_name varchar(20) NOT NULL
);
CREATE TABLE charge (
    ch_tt_id char(3) NOT NULL,
    ch_c_tier integer NOT NULL,
    ch_chrg bigint NOT NULL
);
CREATE TABLE commission_rate (
    cr_c_tier integer NOT NULL,
    cr_tt_id char(3) NOT NULL,
    cr_ex_id bigint NOT NULL,
    cr_from_qty integer NOT NULL,
    cr_to_qty integer NOT NULL,
    cr_rate bigint NOT NULL
);
CREATE TABLE watch_list (
    wl_id bigint NOT NULL,
    wl_c_id bigint NOT NULL
);
CREATE TABLE watch_item (
    wi_wl_id bigint NOT NULL,
    wi_s_symb varchar(15) NOT NULL
);
CREATE SEQUENCE trade_ids START 461601;
CREATE TABLE trade (
    t_id bigint NOT NULL,
    t_dts timestamp NOT NULL,
    t_st_id char(4) NOT NULL,
    t_tt_id char(3) NOT NULL,
    t_is_cash integer NOT NULL,
    t_s_symb varchar(15) NOT NULL,
    t_qty integer NOT NULL,
    t_bid_price bigint NOT NULL,
    t_ca_id bigint NOT NULL,
    t_exec_name varchar(49) NOT NULL,
    t_trade_price bigint,
    t_chrg bigint NOT NULL,
    t_comm bigint NOT NULL,
    t_tax bigint NOT NULL,
    t_lifo integer NOT NULL
) WITH (fillfactor = 90);
CREATE TABLE trade_history (
    th_t_id bigint NOT NULL,
    th_dts timestamp NOT NULL,
    th_st_id char(4) NOT NULL
);
CREATE TABLE trade_request (
    tr_t_id bigint NOT NULL,
    tr_tt_id char(3) NOT NULL,
    tr_s_symb varchar(15) NOT NULL,
    tr_qty integer NOT NULL,
    tr_bid_price bigint NOT NULL,
    tr_b_id bigint NOT NULL
);
CREATE TABLE market_queue (
    mq_t_id bigint NOT NULL
);
CREATE TABLE settlement (
    se_t_id bigint NOT NULL,
    se_cash_type varchar(40) NOT NULL,
    se_cash_due_date date NOT NULL,
    se_amt bigint NOT NULL
) WITH (fillfactor = 90);
CREATE TABLE cash_transaction (
    ct_t_id bigint NOT NULL,
    ct_dts timestamp NOT NULL,
    ct_amt bigint NOT NULL,
    ct_name varchar(100)
) WITH (fillfactor = 90);
CREATE TABLE holding (
    h_t_id bigint NOT NULL,
    h_ca_id bigint NOT NULL,
    h_s_symb varchar(15) NOT NULL,
    h_dts timestamp NOT NULL,
    h_price bigint NOT NULL,
    h_qty integer NOT NULL
);
CREATE TABLE holding_history (
    hh_h_t_id bigint NOT NULL,
    hh_t_id bigint NOT NULL,
    hh_before_qty integer NOT NULL,
    hh_after_qty integer NOT NULL
);
CREATE TABLE holding_summary (
    hs_ca_id bigint NOT NULL,
    hs_s_symb varchar(15) NOT NULL,
    hs_qty bigint NOT NULL
) WITH (fillfactor = 90);

-- What hardly grows.
INSERT INTO zip_code SELECT lpad((id * 6)::text, 5, '0'), pg_temp.words(id, 1, 5, 20), pg_temp.words(id % 50, 2, 2, 2)
FROM generate_series(1, 14741) id;
INSERT INTO address
SELECT id, pg_temp.words(id, 3, 10, 40), pg_temp.words(id, 4, 5, 20), lpad((6 * (1 + floor(pg_temp.draw(id, 5) * 14741)::bigint))::text, 5, '0'),
    CASE WHEN id % 2 = 0 THEN 'USA' ELSE 'Canada' END
FROM generate_series(1, 1504) id;
INSERT INTO status_type VALUES ('PNDG', 'Pending'), ('SBMT', 'Submitted'), ('CMPT', 'Completed'), ('ACTV', 'Active'), ('CNCL', 'Canceled');
INSERT INTO trade_type VALUES ('TMB', 'Market-Buy', 0, 1), ('TMS', 'Market-Sell', 1, 1), ('TSL', 'Stop-Loss', 1, 0),
    ('TLS', 'Limit-Sell', 1, 0), ('TLB', 'Limit-Buy', 0, 0);
INSERT INTO taxrate SELECT 'T' || lpad(id::text, 3, '0'), pg_temp.words(id, 6, 10, 50), 100 + floor(pg_temp.draw(id, 7) * 1900)::bigint
FROM generate_series(1, 320) id;
INSERT INTO sector SELECT id, 'Sector ' || id FROM generate_series(1, 12) id;
INSERT INTO industry SELECT id, 'Industry ' || id, 1 + id % 12 FROM generate_series(1, 102) id;
INSERT INTO exchange SELECT id, 'Exchange ' || id, 0, 570, 960, pg_temp.words(id, 8, 100, 150), 1500 + id FROM generate_series(1, 4) id;
INSERT INTO company
SELECT id, 'ACTV', 'Company ' || id, 1 + id % 102, 'AAA', pg_temp.words(id, 9, 10, 46), 1000 + id, pg_temp.words(id, 10, 100, 150),
    date '1950-01-01' + floor(pg_temp.draw(id, 11) * 15000)::integer
FROM generate_series(1, 500) id;
INSERT INTO company_competitor
SELECT id, 1 + (id + n * 101) % 500, 1 + (id + n * 101 + 1) % 102 FROM generate_series(1, 500) id, generate_series(1, 3) n;
INSERT INTO security
SELECT symbol(id), CASE WHEN id <= 500 THEN 'COMMON' ELSE 'PREF_A' END, 'ACTV', pg_temp.words(id, 12, 20, 70), 1 + id % 4,
    CASE WHEN id <= 500 THEN id ELSE id - 500 END, 4000000 + floor(pg_temp.draw(id, 13) * 9500000000)::bigint, '1990-01-02', '1995-01-02',
    100 + floor(pg_temp.draw(id, 14) * 11900)::bigint, 3000, '2004-06-01', 2000, '2004-09-01', floor(pg_temp.draw(id, 15) * 1000)::bigint, 0
FROM generate_series(1, 685) id;
UPDATE exchange SET ex_num_symb = (SELECT count(*) FROM security WHERE s_ex_id = ex_id);
-- A year of 260 days on which the market was open.
INSERT INTO daily_market
SELECT symbol(id), date '2004-01-05' + day + day / 5 * 2, close, close + 150, close - 130, 1000 + floor(pg_temp.draw(id * 2048 + day, 17) * 9000)::bigint
FROM generate_series(1, 685) id CROSS JOIN generate_series(0, 259) day
CROSS JOIN LATERAL (SELECT 2000 + floor(pg_temp.draw(id * 2048 + day, 16) * 1001)::integer AS close OFFSET 0) drawn
ORDER BY id, day;
INSERT INTO financial
SELECT id, 2000 + n / 4, 1 + n % 4, make_date(2000 + n / 4, 1 + n % 4 * 3, 1), revenue, revenue / 5, revenue / 90000000, revenue / 100000000,
    2000, revenue / 8, revenue * 3, revenue, 1000000000, 1100000000
FROM generate_series(1, 500) id CROSS JOIN generate_series(0, 19) n
CROSS JOIN LATERAL (SELECT 10000000000 + floor(pg_temp.draw(id * 32 + n, 18) * 1500000000000)::bigint AS revenue OFFSET 0) drawn
ORDER BY id, n;
INSERT INTO last_trade
SELECT symbol(id), '2005-01-12 17:00', price, price, 0 FROM generate_series(1, 685) id
CROSS JOIN LATERAL (SELECT 2000 + floor(pg_temp.draw(id, 19) * 1001)::bigint AS price OFFSET 0) drawn;
INSERT INTO news_item
SELECT id, pg_temp.words(id, 20, 40, 80), pg_temp.words(id, 21, 150, 255),
    (SELECT string_agg(pg_temp.words(id * 128 + n, 22, 128, 128), '') FROM generate_series(1, 78) n),
    timestamp '2004-12-31 16:00' - id * interval '1 hour', pg_temp.words(id, 23, 10, 30), pg_temp.words(id, 24, 10, 30)
FROM generate_series(1, 1000) id;
INSERT INTO news_xref SELECT id, 1 + id % 500 FROM generate_series(1, 1000) id;
INSERT INTO customer
SELECT 1 + rank * 7919 % 1000, 'C' || lpad((1 + rank * 7919 % 1000)::text, 6, '0'), 'ACTV', pg_temp.words(rank, 25, 5, 25),
    pg_temp.words(rank, 26, 4, 20), 'M', CASE WHEN rank % 2 = 0 THEN 'F' ELSE 'M' END,
    CASE WHEN rank < 200 THEN 1 WHEN rank < 800 THEN 2 ELSE 3 END, date '1930-01-01' + floor(pg_temp.draw(rank, 27) * 20000)::integer,
    1 + rank * 7919 % 1000, pg_temp.words(rank, 28, 12, 20), pg_temp.words(rank, 29, 12, 20), pg_temp.words(rank, 30, 12, 20),
    pg_temp.words(rank, 31, 20, 50), pg_temp.words(rank, 32, 20, 50)
FROM generate_series(0::bigint, 999) rank ORDER BY 1;
-- A rate of the country, of four, and one of the province.
INSERT INTO customer_taxrate
SELECT 'T' || lpad((CASE n WHEN 1 THEN 1 + c_id % 4 ELSE 5 + c_id % 316 END)::text, 3, '0'), c_id FROM customer, generate_series(1, 2) n;
INSERT INTO charge SELECT tt_id, tier, 50 + 100 * (4 - tier) + 25 * tt_is_sell FROM trade_type, generate_series(1, 3) tier;
INSERT INTO commission_rate
SELECT tier, tt_id, ex_id, low, high, 120 - 20 * tier - low / 40 + 3 * tt_is_sell + ex_id
FROM trade_type, exchange, generate_series(1, 3) tier, (VALUES (1, 199), (200, 399), (400, 799), (800, 9999999)) quantity (low, high);
INSERT INTO watch_list SELECT c_id, c_id FROM customer ORDER BY c_id;
INSERT INTO watch_item
SELECT wl_id, symbol(1 + (wl_id * 53 + n * 3) % 685) FROM watch_list CROSS JOIN LATERAL generate_series(1, 50 + wl_id * 37 % 101) n
ORDER BY wl_id, n;

-- Accounts without their trades, which are added below.
CREATE TEMP TABLE account AS
SELECT 10 * (1 + rank * 7919 % 1000) + n AS id, 1 + rank * 7919 % 1000 AS customer, (CASE WHEN rank < 200 THEN 1 WHEN rank < 800 THEN 2 ELSE 3 END) AS tier,
    (10 * (1 + rank * 7919 % 1000) + n) % 10 + 1 AS broker
FROM generate_series(0::bigint, 999) rank CROSS JOIN LATERAL generate_series(0, pg_temp.accounts(rank) - 1) n;
INSERT INTO account_permission
SELECT id, '0000', 'C' || lpad(customer::text, 6, '0'), pg_temp.words(customer, 33, 5, 25), pg_temp.words(customer, 34, 4, 20) FROM account ORDER BY id;
INSERT INTO account_permission
SELECT id, '0011', 'P' || lpad((id * 3 + n)::text, 6, '0'), pg_temp.words(id * 2 + n, 35, 5, 25), pg_temp.words(id * 2 + n, 36, 4, 20)
FROM account CROSS JOIN generate_series(1, 2) n WHERE pg_temp.draw(id, 37) < CASE n WHEN 1 THEN 0.4 ELSE 0.02 END ORDER BY id, n;

-- Trades come in fours: an account buys a security twice, sells all of the first and half of the second, and then half of what is left of
-- it or, 3 times in 20, all. An account deals in ten securities. Trades are numbered by time.
CREATE TEMP TABLE episode AS
SELECT e, account, security, 100 << floor(pg_temp.draw(e, 38) * 4)::integer AS q1, 100 << floor(pg_temp.draw(e, 39) * 4)::integer AS q2,
    CASE WHEN pg_temp.draw(e, 40) < 0.15 THEN 2 ELSE 4 END AS part, pg_temp.draw(e, 41) AS start, pg_temp.draw(e, 42) AS span,
    2000 + floor(pg_temp.draw(e, 43) * 1001)::bigint AS p1, 2000 + floor(pg_temp.draw(e, 44) * 1001)::bigint AS p2,
    2000 + floor(pg_temp.draw(e, 45) * 1001)::bigint AS p3, 2000 + floor(pg_temp.draw(e, 46) * 1001)::bigint AS p4
FROM generate_series(1::bigint, 115200) e
CROSS JOIN LATERAL (SELECT pg_temp.ranked(pg_temp.draw(e, 47)) AS rank OFFSET 0) r
CROSS JOIN LATERAL (SELECT 10 * (1 + rank * 7919 % 1000) + floor(pg_temp.draw(e, 48) * pg_temp.accounts(rank))::bigint AS account OFFSET 0) a
CROSS JOIN LATERAL (SELECT 1 + (account * 37 + floor(pg_temp.draw(e, 49) * 10)::bigint * 68) % 685 AS security OFFSET 0) s;
CREATE TEMP TABLE numbered AS
SELECT row_number() OVER (ORDER BY start + (1 - start) * span * (n - 1) / 3, e, n) AS id, e, n FROM episode CROSS JOIN generate_series(1, 4) n;
CREATE TEMP TABLE first_two AS
SELECT e, min(id) FILTER (WHERE n = 1) AS one, min(id) FILTER (WHERE n = 2) AS two FROM numbered GROUP BY e;
ANALYZE numbered, episode, first_two, account, customer_taxrate, taxrate, charge, commission_rate;
CREATE TEMP TABLE deal AS
SELECT id, e, n, account, security, quantity, price, tt, (pg_temp.draw(id, 50) < 0.92)::integer AS cash, (pg_temp.draw(id, 51) < 0.35)::integer AS lifo, taxed,
    ch_chrg AS charge, quantity * price * cr_rate / 10000 AS commission,
    CASE WHEN taxed > 0 THEN greatest(gain, 0) * rate / 10000 ELSE 0 END AS tax, customer, broker
FROM numbered JOIN episode USING (e)
CROSS JOIN LATERAL (
    SELECT CASE n WHEN 1 THEN q1 WHEN 2 THEN q2 WHEN 3 THEN q1 + q2 / 2 ELSE q2 / part END AS quantity,
        CASE n WHEN 1 THEN p1 WHEN 2 THEN p2 WHEN 3 THEN p3 ELSE p4 END AS price,
        CASE n WHEN 3 THEN q1 * (p3 - p1) + q2 / 2 * (p3 - p2) WHEN 4 THEN q2 / part * (p4 - p2) ELSE 0 END AS gain,
        CASE WHEN n < 3 THEN CASE WHEN pg_temp.draw(id, 52) < 0.6 THEN 'TMB' ELSE 'TLB' END
            WHEN pg_temp.draw(id, 52) < 0.6 THEN 'TMS' WHEN pg_temp.draw(id, 52) < 0.8 THEN 'TLS' ELSE 'TSL' END AS tt,
        account % 3 AS taxed
    OFFSET 0
) drawn
JOIN (SELECT id AS account, tier, customer, broker FROM account) a USING (account)
JOIN (SELECT cx_c_id AS customer, sum(tx_rate)::bigint AS rate FROM customer_taxrate JOIN taxrate ON tx_id = cx_tx_id GROUP BY 1) x USING (customer)
JOIN charge ON ch_tt_id = tt AND ch_c_tier = tier
JOIN commission_rate ON cr_tt_id = tt AND cr_c_tier = tier AND cr_ex_id = 1 + security % 4 AND quantity BETWEEN cr_from_qty AND cr_to_qty;
ANALYZE deal;
INSERT INTO trade
SELECT id, traded(id), 'CMPT', tt, cash, symbol(security), quantity, price, account, pg_temp.words(id, 53, 15, 40), price, charge, commission, tax, lifo
FROM deal ORDER BY id;
INSERT INTO trade_history
SELECT id, traded(id) - CASE st WHEN 'CMPT' THEN 0 WHEN 'SBMT' THEN 1 ELSE 60 END * interval '1 second', st
FROM deal CROSS JOIN (VALUES (1, 'PNDG'), (2, 'SBMT'), (3, 'CMPT')) AS s (step, st)
WHERE step > 1 OR tt IN ('TLB', 'TLS', 'TSL')
ORDER BY id, step;
INSERT INTO settlement
SELECT id, CASE WHEN cash = 1 THEN 'Cash Account' ELSE 'Margin' END, traded(id)::date + 2, CASE WHEN n < 3 THEN -quantity * price - charge - commission
    ELSE quantity * price - charge - commission - CASE WHEN taxed = 1 THEN tax ELSE 0 END END
FROM deal ORDER BY id;
INSERT INTO cash_transaction
SELECT id, traded(id), se_amt, tt || ' ' || quantity || ' shares of ' || pg_temp.words(security, 12, 20, 70)
FROM deal JOIN settlement ON se_t_id = id WHERE cash = 1 ORDER BY id;
INSERT INTO holding_history
SELECT CASE WHEN n = 1 OR n = 3 AND half = 1 THEN one ELSE two END, id,
    CASE WHEN n < 3 THEN 0 WHEN n = 3 AND half = 1 THEN q1 WHEN n = 3 THEN q2 ELSE q2 - q2 / 2 END,
    CASE WHEN n = 1 THEN q1 WHEN n = 2 THEN q2 WHEN n = 3 AND half = 1 THEN 0 WHEN n = 3 THEN q2 - q2 / 2 ELSE q2 - q2 / 2 - q2 / part END
FROM numbered JOIN episode USING (e) JOIN first_two USING (e) CROSS JOIN generate_series(1, 2) half
WHERE half = 1 OR n = 3
ORDER BY id, half;
INSERT INTO holding
SELECT two, account, symbol(security), traded(two), p2, q2 - q2 / 2 - q2 / part
FROM episode JOIN first_two USING (e) WHERE part = 4 ORDER BY two;
INSERT INTO holding_summary SELECT h_ca_id, h_s_symb, sum(h_qty) FROM holding GROUP BY 1, 2 ORDER BY 1, 2;
INSERT INTO customer_account
SELECT id, broker, customer, pg_temp.words(id, 54, 20, 50), id % 3, balance + coalesce(moved, 0), balance
FROM account
CROSS JOIN LATERAL (SELECT 100000000 + floor(pg_temp.draw(id, 55) * 900000000)::bigint AS balance OFFSET 0) drawn
LEFT JOIN (SELECT account, sum(ct_amt)::bigint AS moved FROM deal JOIN cash_transaction ON ct_t_id = deal.id GROUP BY 1) c ON account = account.id
ORDER BY id;
INSERT INTO broker
SELECT broker, 'ACTV', 'Broker ' || broker, count(*), sum(commission) FROM deal GROUP BY broker ORDER BY broker;
-- 500 limit orders that wait for their price, and 300 orders that the market has in hand.
CREATE TEMP TABLE waits AS
SELECT 460800 + turn AS id, account, broker, 1 + (account * 37 + turn % 10 * 68) % 685 AS security, 100 << (turn % 4)::integer AS quantity,
    CASE WHEN turn > 500 THEN (ARRAY['TMB', 'TMS'])[1 + turn % 2] ELSE (ARRAY['TLB', 'TLB', 'TLS', 'TSL'])[1 + turn / 4 % 4] END AS tt, tier,
    2000 + floor(pg_temp.draw(turn, 56) * 1001)::bigint AS price
FROM (SELECT id AS account, broker, tier, row_number() OVER (ORDER BY pg_temp.draw(id, 57)) AS turn FROM account) a WHERE turn <= 800;
INSERT INTO trade
SELECT id, traded(460800), CASE WHEN id > 461300 THEN 'SBMT' ELSE 'PNDG' END, tt, 1, symbol(security), quantity, price, account, pg_temp.words(id, 53, 15, 40),
    NULL, ch_chrg, 0, 0, 0
FROM waits JOIN charge ON ch_tt_id = tt AND ch_c_tier = tier ORDER BY id;
INSERT INTO trade_history SELECT id, traded(460800), CASE WHEN id > 461300 THEN 'SBMT' ELSE 'PNDG' END FROM waits ORDER BY id;
INSERT INTO trade_request SELECT id, tt, symbol(security), quantity, price, broker FROM waits WHERE id <= 461300 ORDER BY id;
INSERT INTO market_queue SELECT id FROM waits WHERE id > 461300 ORDER BY id;

ALTER TABLE zip_code ADD PRIMARY KEY (zc_code);
ALTER TABLE address ADD PRIMARY KEY (ad_id);
ALTER TABLE status_type ADD PRIMARY KEY (st_id);
ALTER TABLE trade_type ADD PRIMARY KEY (tt_id);
ALTER TABLE taxrate ADD PRIMARY KEY (tx_id);
ALTER TABLE sector ADD PRIMARY KEY (sc_id);
ALTER TABLE industry ADD PRIMARY KEY (in_id);
ALTER TABLE exchange ADD PRIMARY KEY (ex_id);
ALTER TABLE company ADD PRIMARY KEY (co_id);
ALTER TABLE company_competitor ADD PRIMARY KEY (cp_co_id, cp_comp_co_id, cp_in_id);
ALTER TABLE security ADD PRIMARY KEY (s_symb);
ALTER TABLE daily_market ADD PRIMARY KEY (dm_s_symb, dm_date);
ALTER TABLE financial ADD PRIMARY KEY (fi_co_id, fi_year, fi_qtr);
ALTER TABLE last_trade ADD PRIMARY KEY (lt_s_symb);
ALTER TABLE news_item ADD PRIMARY KEY (ni_id);
ALTER TABLE news_xref ADD PRIMARY KEY (nx_co_id, nx_ni_id);
ALTER TABLE customer ADD PRIMARY KEY (c_id);
ALTER TABLE customer_taxrate ADD PRIMARY KEY (cx_c_id, cx_tx_id);
ALTER TABLE broker ADD PRIMARY KEY (b_id);
ALTER TABLE customer_account ADD PRIMARY KEY (ca_id);
ALTER TABLE account_permission ADD PRIMARY KEY (ap_ca_id, ap_tax_id);
ALTER TABLE charge ADD PRIMARY KEY (ch_tt_id, ch_c_tier);
ALTER TABLE commission_rate ADD PRIMARY KEY (cr_c_tier, cr_tt_id, cr_ex_id, cr_from_qty);
ALTER TABLE watch_list ADD PRIMARY KEY (wl_id);
ALTER TABLE watch_item ADD PRIMARY KEY (wi_wl_id, wi_s_symb);
ALTER TABLE trade ADD PRIMARY KEY (t_id);
ALTER TABLE trade_history ADD PRIMARY KEY (th_t_id, th_st_id);
ALTER TABLE trade_request ADD PRIMARY KEY (tr_t_id);
ALTER TABLE market_queue ADD PRIMARY KEY (mq_t_id);
ALTER TABLE settlement ADD PRIMARY KEY (se_t_id);
ALTER TABLE cash_transaction ADD PRIMARY KEY (ct_t_id);
ALTER TABLE holding ADD PRIMARY KEY (h_t_id);
ALTER TABLE holding_history ADD PRIMARY KEY (hh_h_t_id, hh_t_id);
ALTER TABLE holding_summary ADD PRIMARY KEY (hs_ca_id, hs_s_symb);

CREATE INDEX company_name ON company (co_name);
CREATE INDEX company_industry ON company (co_in_id);
CREATE INDEX security_company ON security (s_co_id, s_issue);
CREATE INDEX customer_tax ON customer (c_tax_id);
CREATE INDEX account_customer ON customer_account (ca_c_id);
CREATE INDEX watch_list_customer ON watch_list (wl_c_id);
CREATE INDEX trade_account ON trade (t_ca_id, t_dts);
CREATE INDEX trade_security ON trade (t_s_symb, t_dts);
CREATE INDEX trade_request_security ON trade_request (tr_s_symb);
CREATE INDEX trade_request_broker ON trade_request (tr_b_id, tr_s_symb);
CREATE INDEX holding_account ON holding (h_ca_id, h_s_symb, h_dts);
CREATE INDEX holding_history_trade ON holding_history (hh_t_id);

ALTER TABLE address ADD FOREIGN KEY (ad_zc_code) REFERENCES zip_code;
ALTER TABLE industry ADD FOREIGN KEY (in_sc_id) REFERENCES sector;
ALTER TABLE exchange ADD FOREIGN KEY (ex_ad_id) REFERENCES address;
ALTER TABLE company ADD FOREIGN KEY (co_in_id) REFERENCES industry, ADD FOREIGN KEY (co_ad_id) REFERENCES address;
ALTER TABLE company_competitor ADD FOREIGN KEY (cp_co_id) REFERENCES company, ADD FOREIGN KEY (cp_comp_co_id) REFERENCES company;
ALTER TABLE security ADD FOREIGN KEY (s_co_id) REFERENCES company, ADD FOREIGN KEY (s_ex_id) REFERENCES exchange;
ALTER TABLE daily_market ADD FOREIGN KEY (dm_s_symb) REFERENCES security;
ALTER TABLE financial ADD FOREIGN KEY (fi_co_id) REFERENCES company;
ALTER TABLE last_trade ADD FOREIGN KEY (lt_s_symb) REFERENCES security;
ALTER TABLE news_xref ADD FOREIGN KEY (nx_ni_id) REFERENCES news_item, ADD FOREIGN KEY (nx_co_id) REFERENCES company;
ALTER TABLE customer ADD FOREIGN KEY (c_ad_id) REFERENCES address;
ALTER TABLE customer_taxrate ADD FOREIGN KEY (cx_tx_id) REFERENCES taxrate, ADD FOREIGN KEY (cx_c_id) REFERENCES customer;
ALTER TABLE customer_account ADD FOREIGN KEY (ca_b_id) REFERENCES broker, ADD FOREIGN KEY (ca_c_id) REFERENCES customer;
ALTER TABLE account_permission ADD FOREIGN KEY (ap_ca_id) REFERENCES customer_account;
ALTER TABLE watch_list ADD FOREIGN KEY (wl_c_id) REFERENCES customer;
ALTER TABLE watch_item ADD FOREIGN KEY (wi_wl_id) REFERENCES watch_list, ADD FOREIGN KEY (wi_s_symb) REFERENCES security;
ALTER TABLE trade ADD FOREIGN KEY (t_ca_id) REFERENCES customer_account, ADD FOREIGN KEY (t_s_symb) REFERENCES security,
    ADD FOREIGN KEY (t_st_id) REFERENCES status_type, ADD FOREIGN KEY (t_tt_id) REFERENCES trade_type;
ALTER TABLE trade_history ADD FOREIGN KEY (th_t_id) REFERENCES trade;
ALTER TABLE trade_request ADD FOREIGN KEY (tr_t_id) REFERENCES trade;
ALTER TABLE market_queue ADD FOREIGN KEY (mq_t_id) REFERENCES trade;
ALTER TABLE settlement ADD FOREIGN KEY (se_t_id) REFERENCES trade;
ALTER TABLE cash_transaction ADD FOREIGN KEY (ct_t_id) REFERENCES trade;
ALTER TABLE holding ADD FOREIGN KEY (h_t_id) REFERENCES trade, ADD FOREIGN KEY (h_ca_id, h_s_symb) REFERENCES holding_summary;
ALTER TABLE holding_history ADD FOREIGN KEY (hh_h_t_id) REFERENCES trade, ADD FOREIGN KEY (hh_t_id) REFERENCES trade;
ALTER TABLE holding_summary ADD FOREIGN KEY (hs_ca_id) REFERENCES customer_account, ADD FOREIGN KEY (hs_s_symb) REFERENCES security;
