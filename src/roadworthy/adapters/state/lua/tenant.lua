-- What every step begins with: the time, the tenant's row, and leases that ran out.
--
-- KEYS  1 the tenant's row (hash)          e epoch, n newest time seen, d day, u tokens used that day, pd pu the day
--                                          before it, rt rl / tt tl: TAT and limit of requests and of tokens a
--                                          minute, b blocks held, bb borrowed ones among them
--       2 leases (sorted set)              lease id -> when it runs out
--       3 charges (hash)                   lease id -> "prompt:output:blocks:borrowed:day"
--       4 run out, not settled (sorted set) lease id -> when it is forgotten
-- ARGV  1 time, 0 for the server's own   2 tokens used today if the caller knows, -1 if not
-- Times are microseconds of the epoch: exact in a double until the year 2255.

local MINUTE, DAY = 60000000, 86400000000
local FORGET_AFTER = 3600000000
local IDLE_MS = 172800000

local now = tonumber(ARGV[1])
if now == 0 then
  local clock = redis.call('TIME')
  now = clock[1] * 1000000 + clock[2]
end
local seed = tonumber(ARGV[2])

local FIELDS = {'e', 'n', 'd', 'u', 'pd', 'pu', 'rt', 'rl', 'tt', 'tl', 'b', 'bb'}
local row = {}
for at, value in ipairs(redis.call('HMGET', KEYS[1], unpack(FIELDS))) do
  row[FIELDS[at]] = tonumber(value or 0)
end

local function whole(number)
  return string.format('%.0f', number)
end

local function save()
  row.n = now
  local flat = {}
  for _, name in ipairs(FIELDS) do
    flat[#flat + 1] = name
    flat[#flat + 1] = whole(row[name])
  end
  redis.call('HSET', KEYS[1], unpack(flat))
  for at = 1, 4 do redis.call('PEXPIRE', KEYS[at], IDLE_MS) end
end

local function charge_of(id)
  local text = redis.call('HGET', KEYS[3], id)
  if not text then return nil end
  local prompt, output, blocks, borrowed, day = string.match(text, '(%d+):(%d+):(%d+):(%d):(%d+)')
  return {prompt = tonumber(prompt), output = tonumber(output), blocks = tonumber(blocks),
          borrowed = tonumber(borrowed), day = tonumber(day)}
end

local function keep_charge(id, c)
  redis.call('HSET', KEYS[3], id, table.concat(
    {whole(c.prompt), whole(c.output), whole(c.blocks), whole(c.borrowed), whole(c.day)}, ':'))
end

-- by how much units move TAT, as route.govern.gcra has it
local function cost(units, per_minute)
  return math.floor(units * MINUTE / per_minute)
end

-- what was charged to a day and to the minute's allowance turned out to be another number
local function correct(charged, used, day)
  if day == row.d then row.u = row.u + used - charged end
  if day == row.pd then row.pu = row.pu + used - charged end
  if row.tl > 0 then row.tt = row.tt + cost(used, row.tl) - cost(charged, row.tl) end
end

local function give_back(c)
  row.b = math.max(0, row.b - c.blocks)
  if c.borrowed == 1 then row.bb = math.max(0, row.bb - c.blocks) end
end

local function hold(c)
  row.b = row.b + c.blocks
  if c.borrowed == 1 then row.bb = row.bb + c.blocks end
end

-- A clock that was set back would keep slots and allowances for as long as it went: everything moves with it.
local function follow_clock()
  local back = row.n - now
  if back <= 0 then return end
  if back <= 1000000 then
    now = row.n
    return
  end
  row.rt, row.tt, row.changed = row.rt - back, row.tt - back, true
  local leases = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
  for at = 1, #leases, 2 do
    redis.call('ZADD', KEYS[2], whole(leases[at + 1] - back), leases[at])
  end
end

-- A lease that ran out gives back its slot, its blocks and the output that it had reserved; what was really used is
-- corrected when it is settled after all, within the hour.
local function run_out()
  local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', whole(now))
  for _, id in ipairs(gone) do
    local c = charge_of(id)
    redis.call('ZREM', KEYS[2], id)
    if c then
      give_back(c)
      correct(c.prompt + c.output, c.prompt, c.day)
      c.output = 0
      keep_charge(id, c)
      redis.call('ZADD', KEYS[4], whole(now + FORGET_AFTER), id)
    end
  end
  local forgotten = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', whole(now))
  for _, id in ipairs(forgotten) do
    redis.call('HDEL', KEYS[3], id)
    redis.call('ZREM', KEYS[4], id)
  end
  if #gone > 0 then row.changed = true end
end

local function turn_to(day)
  if day == row.d then return end
  local used = 0
  if day == row.pd then used = row.pu end
  row.d, row.u, row.pd, row.pu = day, used, row.d, row.u
end

-- False when the day's tokens have to be asked of the ledger first: nothing is known of this tenant.
local function begin()
  if row.e == 0 then
    if seed < 0 then return false end
    row.e, row.n, row.changed = now, now, true
    row.d, row.u = math.floor(now / DAY), seed
    row.rt, row.tt = -MINUTE, -MINUTE
  end
  follow_clock()
  turn_to(math.floor(now / DAY))
  run_out()
  if row.changed then save() end
  return true
end
