-- Voter: 600 000 votes already cast. After the benchmark of VoltDB and OLTP-Bench, in our own words; see ../README.md.
-- Plain SQL without commands of psql. The same data at every load, but for the dates. Keys come last, which loads faster.
CREATE TABLE contestants (
    contestant_number integer NOT NULL,
    contestant_name varchar(50) NOT NULL
);
CREATE TABLE area_code_state (
    area_code smallint NOT NULL,
    state varchar(2) NOT NULL
);
CREATE SEQUENCE vote_ids;
CREATE TABLE votes (
    vote_id bigint NOT NULL DEFAULT nextval('vote_ids'),
    phone_number bigint NOT NULL,
    state varchar(2) NOT NULL,
    contestant_number integer NOT NULL,
    created timestamptz NOT NULL
);

INSERT INTO contestants
SELECT number, (ARRAY['A juggler', 'A choir', 'Two dancers', 'A mimic', 'A magician', 'A man who sings']) [number]
FROM generate_series(1, 6) number;

-- The codes are 201, 203 to 799: what a script can draw. Which lies in which state is made up.
INSERT INTO area_code_state
SELECT 201 + 2 * code, names[1 + code % 50]
FROM generate_series(0, 299) code, string_to_array('AL AK AZ AR CA CO CT DE FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN '
    || 'MS MO MT NE NV NH NJ NM NY NC ND OH OK OR PA RI SC SD TN TX UT VT VA WA WV WI WY', ' ') names;

-- A number is its area code and seven digits. Half of the votes go to the favourite of the area, which is area / 2 % 6 + 1.
INSERT INTO votes
SELECT nextval('vote_ids'), area * 10000000 + (hashint8extended(vote, 2) & 1073741823) % 10000000, state,
    CASE WHEN hashint8extended(vote, 3) & 1 = 0 THEN 1 + area / 2 % 6 ELSE 1 + (hashint8extended(vote, 4) & 1073741823) % 6 END,
    now() - (600000 - vote) * interval '10 milliseconds'
FROM generate_series(1, 600000) vote
CROSS JOIN LATERAL (SELECT 201 + 2 * ((hashint8extended(vote, 1) & 1073741823) % 300) AS area) drawn
JOIN area_code_state ON area_code = area
ORDER BY vote;

ALTER TABLE contestants ADD PRIMARY KEY (contestant_number);
ALTER TABLE area_code_state ADD PRIMARY KEY (area_code);
ALTER TABLE votes ADD PRIMARY KEY (vote_id);
CREATE INDEX votes_phone_number ON votes (phone_number);
ALTER TABLE votes ADD FOREIGN KEY (contestant_number) REFERENCES contestants;
