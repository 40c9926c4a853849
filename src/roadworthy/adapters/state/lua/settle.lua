-- ARGV 3 lease id  4 prompt and output tokens that were really used
-- Answers 1, or 0 where there is nothing to settle: settled before, or forgotten.

local c = charge_of(ARGV[3])
if not c or row.e == 0 then return 0 end
begin()
c = charge_of(ARGV[3])
if not c then return 0 end
if redis.call('ZREM', KEYS[2], ARGV[3]) == 1 then give_back(c) end
redis.call('ZREM', KEYS[4], ARGV[3])
redis.call('HDEL', KEYS[3], ARGV[3])
correct(c.prompt + c.output, tonumber(ARGV[4]), c.day)
save()
return 1
