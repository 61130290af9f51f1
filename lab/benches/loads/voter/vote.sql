-- Voter: a call. At most 1000 votes count of one number. There are 3 000 000 000 numbers, so that no call is refused in practice,
-- and every commit is one vote more, which is how check.sql sees a lost one.
\set area 201 + 2 * random(0, 299)
\set phone :area * 10000000 + random(0, 9999999)
\set any random(1, 6)
\set contestant case when random(0, 1) = 0 then 1 + :area / 2 % 6 else :any end
BEGIN;
SELECT count(*) AS contestants FROM contestants WHERE contestant_number = :contestant \gset
SELECT count(*) AS earlier FROM votes WHERE phone_number = :phone \gset
\if :contestants = 1 and :earlier < 1000
-- The state is looked up in the same statement: pgbench cannot quote a text that it was given. Numbers of nowhere count for XX.
INSERT INTO votes (phone_number, state, contestant_number, created)
VALUES (:phone, coalesce((SELECT state FROM area_code_state WHERE area_code = :area), 'XX'), :contestant, now());
\endif
END;
