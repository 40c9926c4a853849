-- Answers {requests, blocks, borrowed blocks, tokens of today, day, requests' TAT - now, their limit, tokens' the same}

if row.e == 0 then return {0, 0, 0, seed, math.floor(now / DAY), 0, 0, 0, 0} end
begin()
return {redis.call('ZCARD', KEYS[2]), row.b, row.bb, row.u, row.d,
        math.max(0, row.rt - now), row.rl, math.max(0, row.tt - now), row.tl}
