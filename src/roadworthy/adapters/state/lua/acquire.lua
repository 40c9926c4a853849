-- ARGV 3 lease id  4 prompt  5 output  6 blocks  7 TTL
--      8 concurrency  9 daily tokens  10 requests a minute  11 tokens a minute  12 blocks; -1 for no limit
-- Answers {1, epoch, day, borrowed}, or {2, day} to be told the day's tokens, or {0, which limit, wait, what is taken}
-- with 0 concurrency, 1 day, 2 requests, 3 tokens.

if not begin() then return {2, math.floor(now / DAY)} end

local id, ttl = ARGV[3], tonumber(ARGV[7])
local c = {prompt = tonumber(ARGV[4]), output = tonumber(ARGV[5]), blocks = tonumber(ARGV[6]), borrowed = 0, day = row.d}
local concurrency, daily, rpm, tpm, kv =
  tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])

if redis.call('ZSCORE', KEYS[2], id) then -- the answer was lost and the question repeated
  local held = charge_of(id)
  return {1, row.e, held.day, held.borrowed}
end

local tokens = c.prompt + c.output
local running = redis.call('ZCARD', KEYS[2])
if concurrency >= 0 and running >= concurrency then return {0, 0, 0, running} end
if daily >= 0 and row.u + tokens > daily then return {0, 1, (row.d + 1) * DAY - now, row.u} end
-- a rate that was edited keeps the time that there is still to wait, at most a minute
local rt, rl, tt, tl = row.rt, row.rl, row.tt, row.tl
if rpm > 0 then
  if rpm ~= rl then rl, rt = rpm, math.min(rt, now + MINUTE) end
  rt = math.max(rt, now) + cost(1, rpm)
  if rt - now > MINUTE then return {0, 2, rt - now - MINUTE, 0} end
end
if tpm > 0 then
  if tpm ~= tl then tl, tt = tpm, math.min(tt, now + MINUTE) end
  tt = math.max(tt, now) + cost(tokens, tpm)
  if tt - now > MINUTE then return {0, 3, tt - now - MINUTE, 0} end
end
row.rt, row.rl, row.tt, row.tl, row.u = rt, rl, tt, tl, row.u + tokens
if kv >= 0 and row.b + c.blocks > kv then c.borrowed = 1 end
hold(c)
redis.call('ZADD', KEYS[2], whole(now + ttl), id) -- first of all writes: a server that is full says so here
redis.call('ZREM', KEYS[4], id)
keep_charge(id, c)
save()
return {1, row.e, row.d, c.borrowed}
