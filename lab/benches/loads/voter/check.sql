-- votes that pgbench was told of and that are lost
SELECT greatest(600000 + :transactions - count(*), 0) FROM votes;
-- votes that were loaded and are lost
SELECT 600000 - count(*) FROM votes WHERE vote_id <= 600000;
-- votes with a number that the sequence has not given yet
SELECT count(*) FROM votes WHERE vote_id > (SELECT last_value FROM vote_ids);
-- votes for nobody
SELECT count(*) FROM votes WHERE NOT EXISTS (SELECT FROM contestants c WHERE c.contestant_number = votes.contestant_number);
-- votes that are counted for another state than that of their area
SELECT count(*) FROM votes LEFT JOIN area_code_state ON area_code = phone_number / 10000000
WHERE votes.state <> coalesce(area_code_state.state, 'XX');
-- numbers that voted more than 1000 times
SELECT count(*) FROM (SELECT FROM votes GROUP BY phone_number HAVING count(*) > 1000) numbers;
-- votes, of every 500th, that the index of their number does not find
SELECT count(*) FROM (SELECT vote_id, phone_number FROM votes WHERE vote_id % 500 = 7) v
WHERE 1 <> (SELECT count(*) FROM votes w WHERE w.phone_number = v.phone_number AND w.vote_id = v.vote_id);
