-- Puts a policy document under a key, unless that would take the fleet back, or give one version two meanings.
--
-- KEYS[1]  the policy: a hash of version, digest and document; absent at first
-- ARGV[1]  version of the new document, a whole number from 1
-- ARGV[2]  digest of the new document
-- ARGV[3]  the new document
--
-- Replies {what, version there before, digest there before}:
--   1  it is there now
--   0  it was there already; nothing was written
--  -1  refused: a higher version is there, or the same one with another digest; nothing was written
-- Fails with WRONGTYPE where the key holds something else.

local there = redis.call('HMGET', KEYS[1], 'version', 'digest')
local version = there[1] and tonumber(there[1]) or 0
local digest = there[2] or ''
local new = tonumber(ARGV[1])
if new == version and digest == ARGV[2] then
  return {0, version, digest}
end
if new <= version then
  return {-1, version, digest}
end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'digest', ARGV[2], 'document', ARGV[3])
return {1, version, digest}
