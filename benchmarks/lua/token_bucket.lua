-- The yardstick: a bare token bucket, one request at a time, as most limiters on Redis have it. No grants, no k.
--
-- KEYS[1]  hash: tokens, at.   ARGV[1] rate per second, ARGV[2] burst, ARGV[3] cost.   Reply: {allowed, tokens left}.

local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local stored = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens = math.min(burst, (tonumber(stored[1]) or burst) + rate * math.max(0, now - (tonumber(stored[2]) or now)))
local allowed = tokens >= cost and 1 or 0
tokens = tokens - allowed * cost
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil((burst - tokens) / rate * 1000) + 1000)
return {allowed, math.floor(tokens)}
