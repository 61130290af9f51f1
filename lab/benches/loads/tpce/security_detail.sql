-- TPC-E, Security-Detail: a security with its company, competitors, quarters, 5 to 20 days of its market, last price and news; once in a hundred
-- the news in full.
\set security random(1, 685)
\set company case when :security > 500 then :security - 500 else :security end
\set days random(5, 20)
\set day random(0, 239)
\set day :day + :day / 5 * 2
\set full random(1, 100)
BEGIN;
SELECT s_name, co_id, co_name, co_sp_rate, co_ceo, co_desc, co_open_date, co_st_id, ca.ad_line1, ca.ad_line2, zca.zc_town, zca.zc_div, ca.ad_ctry,
    s_num_out, s_start_date, s_exch_date, s_pe, s_52wk_high, s_52wk_high_date, s_52wk_low, s_52wk_low_date, s_dividend, s_yield,
    ea.ad_line1, ea.ad_line2, zea.zc_town, zea.zc_div, ea.ad_ctry, ex_name, ex_num_symb, ex_open, ex_close, ex_desc
FROM security JOIN company ON co_id = s_co_id JOIN address ca ON ca.ad_id = co_ad_id JOIN zip_code zca ON zca.zc_code = ca.ad_zc_code
JOIN exchange ON ex_id = s_ex_id JOIN address ea ON ea.ad_id = ex_ad_id JOIN zip_code zea ON zea.zc_code = ea.ad_zc_code
WHERE s_symb = symbol(:security);
SELECT co_name, in_name FROM company_competitor JOIN company ON co_id = cp_comp_co_id JOIN industry ON in_id = cp_in_id
WHERE cp_co_id = :company LIMIT 3;
SELECT fi_year, fi_qtr, fi_qtr_start_date, fi_revenue, fi_net_earn, fi_basic_eps, fi_dilut_eps, fi_margin, fi_inventory, fi_assets, fi_liability,
    fi_out_basic, fi_out_dilut
FROM financial WHERE fi_co_id = :company ORDER BY fi_year, fi_qtr LIMIT 20;
SELECT dm_date, dm_close, dm_high, dm_low, dm_vol FROM daily_market
WHERE dm_s_symb = symbol(:security) AND dm_date >= date '2004-01-05' + :day::integer ORDER BY dm_date LIMIT :days;
SELECT lt_price, lt_open_price, lt_vol FROM last_trade WHERE lt_s_symb = symbol(:security);
\if :full = 1
SELECT ni_item, ni_dts, ni_source, ni_author FROM news_xref JOIN news_item ON ni_id = nx_ni_id WHERE nx_co_id = :company LIMIT 2;
\else
SELECT ni_dts, ni_source, ni_author, ni_headline, ni_summary FROM news_xref JOIN news_item ON ni_id = nx_ni_id WHERE nx_co_id = :company LIMIT 2;
\endif
END;
