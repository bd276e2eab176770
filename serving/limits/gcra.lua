-- Judges the requests of one gateway that came together, each held to all of its limits at once.
--
-- ARGV[1] is a Batch (window.py), and the answer a Reply, both in MessagePack; KEYS[1] is the state
-- that all gateways share, the other keys are what the batch numbers from 2. Moments are microseconds
-- of shared time. The rule is that of gcra.py, to the last bit: change both or neither.

local MINUTE, SLACK, DEBT_MAX = 60e6, 1e3, 3600e6
local LEASE = 5e6        -- how long a gateway that says nothing more keeps its running requests
local SPARE_MS = 60000   -- a count outlives its use by this, whatever the clock does

local batch = cmsgpack.unpack(ARGV[1])
local EXACT = '%.17g'

-- Shared time, and which life of this Redis's memory it is.
local state = redis.call('HMGET', KEYS[1], 'offset', 'life', 'born')
local time = redis.call('TIME')
local raw = (tonumber(time[1]) - batch.epoch) * 1e6 + tonumber(time[2])
local offset, life, born = tonumber(state[1]) or 0, state[2], tonumber(state[3])
if batch.offset then      -- a gateway saw this clock being stepped
  offset, life = batch.offset, nil
  redis.call('HSET', KEYS[1], 'offset', string.format(EXACT, offset))
end
local now = raw + offset
if not (life and born and born <= now) then   -- forgotten: gateways are to tell all they know
  life, born = batch.new_life, now
  redis.call('HSET', KEYS[1], 'life', life, 'born', string.format(EXACT, born))
end

local function answer(kind, verdicts)
  return cmsgpack.pack({batch.id, kind, life, now - born, now, raw, verdicts or {}})
end

-- Nothing is done for a gateway that would not hear of it in time, nor by a time that it knows wrong.
if batch.expected and math.abs(now - batch.expected) > batch.tolerance then
  return answer('clock')
end
if batch.life and batch.life ~= life then
  return answer('lost')
end

local full_ats, dirty = {}, {}

local function full_at(key)
  if not full_ats[key] then
    local kept = tonumber(redis.call('GET', KEYS[key])) or now
    full_ats[key] = math.min(kept, now + MINUTE + DEBT_MAX)
  end
  return full_ats[key]
end

local function put(key, moment)
  full_ats[key] = moment
  dirty[key] = true
end

local function lateness(key, step)
  return math.max(full_at(key), now) + math.min(step, MINUTE) - (now + MINUTE)
end

for _, known in ipairs(batch.known) do
  put(known[1], math.max(full_at(known[1]), known[2]))
end

for _, settled in ipairs(batch.settled) do
  local key, step = settled[1], settled[2]
  if step < 0 then
    put(key, full_at(key) + step)
  else
    put(key, math.max(full_at(key), now) + step)
  end
end

-- Running requests: ours as the batch says, those of others as long as their leases last.
local ours, others = {}, {}
for _, running in ipairs(batch.running) do
  local key = running[1]
  ours[key], others[key] = running[2], 0
  local fields = redis.call('HGETALL', KEYS[key])
  for i = 1, #fields, 2 do
    local count, until_ = string.match(fields[i + 1], '^(%d+) (.+)$')
    if tonumber(until_) <= now then
      redis.call('HDEL', KEYS[key], fields[i])
    elseif fields[i] ~= batch.gateway then
      others[key] = others[key] + tonumber(count)
    end
  end
end

local verdicts = {}
for n, asked in ipairs(batch.asked) do
  local fits = true
  for _, taking in ipairs(asked[1]) do
    fits = fits and lateness(taking[1], taking[2]) <= SLACK
  end
  for _, place in ipairs(asked[2]) do
    fits = fits and ours[place[1]] + others[place[1]] < place[2]
  end
  local ends, in_use = {}, {}
  for i, taking in ipairs(asked[1]) do
    if fits then
      put(taking[1], math.max(full_at(taking[1]), now) + taking[2])
    end
    ends[i] = full_at(taking[1])
  end
  for i, place in ipairs(asked[2]) do
    if fits then
      ours[place[1]] = ours[place[1]] + 1
    end
    in_use[i] = ours[place[1]] + others[place[1]]
  end
  verdicts[n] = {fits, ends, in_use}
end

for key in pairs(dirty) do
  local moment = full_ats[key]
  local left_ms = math.ceil(math.max(moment - now, 0) / 1000)
  redis.call('SET', KEYS[key], string.format(EXACT, moment), 'PX', left_ms + SPARE_MS)
end
for key, count in pairs(ours) do
  if count > 0 then
    redis.call('HSET', KEYS[key], batch.gateway, string.format('%d ' .. EXACT, count, now + LEASE))
    redis.call('PEXPIRE', KEYS[key], SPARE_MS)
  else
    redis.call('HDEL', KEYS[key], batch.gateway)
  end
end
return answer('ok', verdicts)
