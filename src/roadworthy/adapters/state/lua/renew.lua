-- ARGV 3 TTL, then for each lease: id, epoch, prompt, output, blocks, borrowed, day
-- Answers {1, epoch, index of each that had run out …}, or {2, day} to be told the day's tokens.
-- A lease of another epoch was not let run out: the store lost it, and takes it back.

if not begin() then return {2, math.floor(now / DAY)} end

local over = {1, row.e}
local till = whole(now + tonumber(ARGV[3]))
for at = 4, #ARGV, 7 do
  local id = ARGV[at]
  if redis.call('ZSCORE', KEYS[2], id) then
    redis.call('ZADD', KEYS[2], till, id)
  elseif tonumber(ARGV[at + 1]) == row.e or redis.call('HEXISTS', KEYS[3], id) == 1 then
    over[#over + 1] = (at - 4) / 7
  else
    local c = {prompt = tonumber(ARGV[at + 2]), output = tonumber(ARGV[at + 3]), blocks = tonumber(ARGV[at + 4]),
               borrowed = tonumber(ARGV[at + 5]), day = tonumber(ARGV[at + 6])}
    hold(c)
    if c.day == row.d then row.u = row.u + c.prompt + c.output end
    redis.call('ZADD', KEYS[2], till, id)
    keep_charge(id, c)
  end
end
save()
return over
