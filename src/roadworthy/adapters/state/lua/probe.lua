-- Answers {1} when the server takes writes: one that is full, or a replica, would answer everything else.

redis.call('HSET', KEYS[1], 'probe', 1)
redis.call('PEXPIRE', KEYS[1], 1000)
return {1}
