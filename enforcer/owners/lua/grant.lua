-- Settle, refill, count k, lend: one ask of one copy about one bucket. The only script that touches a bucket.
--
-- It computes what enforcer/core/bucket.py specifies, to the last bit: the same operations on doubles in the same
-- order (no exp, no pow). Change both together; tests/contract/test_owner_differential.py compares them.
--
-- KEYS[1]  the bucket: one hash, so that a cluster finds all of it on one node.
-- ARGV[1]  terms, packed '<' 19 d (enforcer/owners/lua/frames.py): plan rate per second, burst; then the dials in the order of
--          enforcer/core/dials.py.
-- ARGV[2]  member, copy_id/epoch: the hash field of the asking copy. Contains a '/', so is never the field 'bucket'.
-- ARGV[3]  ask, packed '<' 8 d: ask_no, waiting, want, rate_per_s, offered, jitter, n, m; then n settlements, each
--          '<' d I4 B I4 d: grant_id, spent, final, size, expires_at; then m d, rising: when a calendar quota starts
--          anew; none for a token bucket.
--
-- Hash fields. All packed little endian, times in unix microseconds of this server:
--   bucket   14 d: tokens (millionths), clock, clock_back, stock_out, lent, offered_per_s, window, k_now, k_before,
--            next_scan, last_grant_id, forget_at, period_start, capacity
--   member   d d B B: ask_no, seen, open, stones; then open grants, each d d I4 I4 I4: grant_id, expires_at, size,
--            stock, spent; then stones (given back, may still be settled), each d d I4 I4: grant_id, until, size, spent
--
-- Reply    one string, packed '<' 11 d: grant_id (0: none), size, k, issued_at, expires_at, tokens, refused_for_ms, now,
--          clock_back, adopted, n; then n credits in the order of their ids, each d I4 I4 B and the member's name: grant_id,
--          size, spent, length of the name. Or d alone, this server's time: it lies outside the turns, nothing was done.
--
-- A state that these rules cannot have written is met with an error that begins with SPOILED, before anything is written.
-- All writes are at the end, so that no error leaves half of them.
--
-- The key expires when the bucket would be full and neither an open grant nor a stone can be left in it.

local unpack, pack, floor, ceil, min, max = struct.unpack, struct.pack, math.floor, math.ceil, math.min, math.max
local MICRO, ROUNDING = 1000000, 0.001
local STATE, GRANT, STONE, TOTAL = '<dddddddddddddd', '<ddI4I4I4', '<ddI4I4', '<dI4BI4d'
local STATE_BYTES, MEMBER_BYTES, GRANT_BYTES, STONE_BYTES, TOTAL_BYTES = 112, 18, 28, 24, 25
local MOST_COUNT, MOST_TOKENS = 9007199254740991, 4294967295
local MOST_OPEN, MOST_STONES, LONGEST_US = 8, 8, 2000000000000000

-- Whether it is a count or a time: whole, not below 0, and exact as a double. Not so of NaN.
local function whole(x) return x >= 0 and x <= MOST_COUNT and x % 1 == 0 end

-- The head of a member's record; nil if it is none, or says what it does not hold.
local function head(record)
  if #record < MEMBER_BYTES then return nil end
  local no, seen, n_open, n_stones, at = unpack('<ddBB', record)
  if #record ~= MEMBER_BYTES + n_open * GRANT_BYTES + n_stones * STONE_BYTES or not (whole(no) and whole(seen)) then
    return nil
  end
  return no, seen, n_open, n_stones, at
end

local function spoiled(what) return {err = 'SPOILED ' .. what .. ' of the bucket is none that was written here'} end

local key, name, words = KEYS[1], ARGV[2], ARGV[3]
local rate, burst, expiry_us, grace_us, keep_us, k_window_us, k_floor, epsilon, overdraft_share, lent_decay_us,
    offered_min_us, press_from, press_span, chunk_us, chunk_large_us, large_rate, pause_min_us, pause_max_us,
    clock_back_us = unpack('<ddddddddddddddddddd', ARGV[1])
local ask_no, waiting, want, own_rate, offered, jitter, n_settled, n_turns, settled_at = unpack('<dddddddd', words)
local quota = n_turns > 0

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stored = redis.call('HMGET', key, 'bucket', name)
local record = stored[2]
local burst_micro = burst * MICRO

local tokens, clock, clock_back, stock_out, lent, offered_per_s, window, k_now, k_before, next_scan, last_id,
    forget_at, period_start, capacity
if stored[1] then
  if #stored[1] ~= STATE_BYTES then return spoiled('the length') end
  tokens, clock, clock_back, stock_out, lent, offered_per_s, window, k_now, k_before, next_scan, last_id,
    forget_at, period_start, capacity = unpack(STATE, stored[1])
  if not (tokens >= -MOST_COUNT * MICRO and tokens <= MOST_TOKENS * MICRO and lent >= 0 and lent <= stock_out
      and offered_per_s >= 0 and offered_per_s < math.huge and capacity <= MOST_TOKENS
      and clock % 1 + clock_back % 1 + stock_out % 1 + window % 1 + k_now % 1 + k_before % 1 + next_scan % 1
        + last_id % 1 + forget_at % 1 + period_start % 1 + capacity % 1 == 0
      and min(clock, clock_back, stock_out, window, k_now, k_before, next_scan, last_id, forget_at, period_start,
        capacity) >= 0
      and max(clock, clock_back, stock_out, window, k_now, k_before, next_scan, last_id, forget_at, period_start)
        <= MOST_COUNT) then
    return spoiled('a number')
  end
else
  tokens, clock, clock_back, stock_out, lent, offered_per_s = burst_micro, now, 0, 0, 0, 0
  window, k_now, k_before, next_scan, last_id, forget_at = floor(now / k_window_us), 0, 0, now + keep_us, 0, 0
  period_start, capacity = 0, 0
  if record then return spoiled('a member') end
end

-- Time never moves back, unless the clock was set back for good: then it goes on from there.
if now < clock then
  clock_back = clock_back + 1
  if clock - now <= clock_back_us then
    now = clock
  else
    clock = now
    next_scan = min(next_scan, now + expiry_us)
  end
end
local elapsed = now - clock

-- A quota: begin the period that it is, unless it has begun; it never goes back. Grants of earlier ones are void.
local since, period_end = 0, 0
if quota then
  local begins, ends, at = 0, 0, settled_at + n_settled * TOTAL_BYTES
  for _ = 1, n_turns do
    local turn
    turn, at = unpack('<d', words, at)
    if turn <= now then
      begins = turn
    else
      if ends == 0 then ends = turn end
      if period_end == 0 and turn > period_start then period_end = turn end
    end
  end
  if begins == 0 or ends == 0 then return pack('<d', now) end
  if period_end == 0 then period_end = ends end
  if begins > period_start then
    period_start = begins
    tokens = burst_micro
  else
    tokens = tokens + (burst - capacity) * MICRO
  end
  capacity = burst
  since = period_start
end

-- The total that this ask states for a grant, if it names it, and whether it is the last: that one counts as it is
-- (refunds may have lowered it), before it the highest.
local function stated(id, spent)
  local named, final, last, at = false, false, 0, settled_at
  for _ = 1, n_settled do
    local settled_id, settled_spent, settled_final, _
    settled_id, settled_spent, settled_final, _, _, at = unpack(TOTAL, words, at)
    if settled_id == id then
      named = true
      spent = max(spent, settled_spent)
      if settled_final == 1 then
        final = true
        last = max(last, settled_spent)
      end
    end
  end
  return final and last or spent, named, final
end

-- Settle. A newer ask that does not name an open grant proves that the grant's answer never arrived.
local known_no, seen, n_open, n_stones, at = 0, 0, 0, 0, 1
if record then
  known_no, seen, n_open, n_stones, at = head(record)
  if not known_no then return spoiled('a member') end
end
local fresh = ask_no > known_no
local credit, opens, stones = 0, '', ''
local open_left, stones_left, known = 0, 0, {}
for _ = 1, n_open do
  local id, expires_at, size, stock, spent
  id, expires_at, size, stock, spent, at = unpack(GRANT, record, at)
  if not (whole(id) and whole(expires_at) and stock <= size) then return spoiled('a grant') end
  stock_out = stock_out - max(0, min(stock, size - spent))
  local named, final
  spent, named, final = stated(id, spent)
  if named then known[id] = true end
  if final or (fresh and not named) then
    if id >= since then credit = credit + size - spent end
  else
    stock_out = stock_out + max(0, min(stock, size - spent))
    opens = opens .. pack(GRANT, id, expires_at, size, stock, spent)
    open_left = open_left + 1
  end
end
for _ = 1, n_stones do
  local id, until_us, size, spent
  id, until_us, size, spent, at = unpack(STONE, record, at)
  if not (whole(id) and whole(until_us)) then return spoiled('a grant') end
  local total, named, final = stated(id, spent)
  if named then known[id] = true end
  if id >= since then credit = credit - (total - spent) end
  if not final then
    stones = stones .. pack(STONE, id, until_us, size, total)
    stones_left = stones_left + 1
  end
end

-- Give back what expired unsettled, when the first of it is due: a look at every member, so seldom.
local credits, credited, gone, changed, bad = 0, '', {}, {}, false
if now >= next_scan + grace_us then
  local given = {}
  next_scan = now + keep_us
  local function expire(whose, grants, n_grants, old_stones, n_old)
    local from, left, kept, n_kept = 1, '', {}, 0
    local n_left = 0
    for _ = 1, n_old do
      local start = from
      local id, until_us, _, _, behind = unpack(STONE, old_stones, from)
      bad = bad or not (whole(id) and whole(until_us))
      from = behind
      if now < until_us and until_us <= now + keep_us then
        n_kept = n_kept + 1
        kept[n_kept] = old_stones:sub(start, from - 1)
      end
    end
    from = 1
    for _ = 1, n_grants do
      local id, expires_at, size, stock, spent
      local start = from
      id, expires_at, size, stock, spent, from = unpack(GRANT, grants, from)
      bad = bad or not (whole(id) and whole(expires_at) and stock <= size)
      -- An expiry further off than any grant lasts was set by a clock that has since been put back.
      if now < expires_at + grace_us and expires_at <= now + expiry_us then
        left = left .. grants:sub(start, from - 1)
        n_left = n_left + 1
        next_scan = min(next_scan, expires_at)
      else
        stock_out = stock_out - max(0, min(stock, size - spent))
        -- A quota takes it for spent until its total says otherwise: nothing would make up for it.
        if quota then spent = max(size, spent) end
        if id >= since then credit = credit + size - spent end
        credits = credits + 1
        given[credits] = {id, pack('<dI4I4B', id, size, spent, #whose) .. whose}
        n_kept = n_kept + 1
        kept[n_kept] = pack(STONE, id, now + keep_us, size, spent)
      end
    end
    local first = max(1, n_kept - MOST_STONES + 1)
    return left, n_left, table.concat(kept, '', first), n_kept - first + 1
  end

  opens, open_left, stones, stones_left = expire(name, opens, open_left, stones, stones_left)
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local field, value = all[i], all[i + 1]
    if field ~= 'bucket' and field ~= name then
      local other_no, other_seen, grants, old, from = head(value)
      if not other_no then return spoiled('a member') end
      local cut = from + grants * GRANT_BYTES
      local left, n_left, kept, n_kept = expire(field, value:sub(from, cut - 1), grants, value:sub(cut), old)
      if n_left == 0 and n_kept == 0 and not (now - keep_us < other_seen and other_seen <= now) then
        gone[#gone + 1] = field
      elseif n_left ~= grants or n_kept ~= old then
        changed[#changed + 1] = field
        changed[#changed + 1] = pack('<ddBB', other_no, other_seen, n_left, n_kept) .. left .. kept
      end
    end
  end
  if bad then return spoiled('a grant') end
  table.sort(given, function(a, b) return a[1] < b[1] end)
  for i = 1, credits do credited = credited .. given[i][2] end
end
tokens = min(burst_micro, tokens + credit * MICRO)

-- Adopt: grants that this copy holds and that are unknown here, for the state was lost. An id further ahead than a grant
-- lasts is of another clock: no later one could be above it.
local adopted = 0
if fresh then
  local at = settled_at
  for _ = 1, n_settled do
    local id, spent, final, size, expires_at
    id, spent, final, size, expires_at, at = unpack(TOTAL, words, at)
    if final == 0 and size > 0 and not known[id] and open_left < MOST_OPEN and since <= id and id <= now + expiry_us then
      local named
      spent, named, final = stated(id, 0)
      -- One past its expiry would be given back at once.
      if not final and now < expires_at + grace_us then
        known[id] = true
        local stock = max(0, size - spent)
        local debit = quota and max(size, spent) or stock
        tokens = max(min(tokens, -burst_micro), tokens - debit * MICRO)
        stock_out = stock_out + stock
        lent = lent + stock
        last_id = max(last_id, id)
        expires_at = min(expires_at, now + expiry_us)
        next_scan = min(next_scan, expires_at)
        opens = opens .. pack(GRANT, id, expires_at, size, stock, spent)
        open_left = open_left + 1
        adopted = adopted + 1
      end
    end
  end
end

-- What is left of 1 after a span: e^-(span/constant) to within 0.01, without exp.
local function decay(constant_us)
  local part = elapsed / constant_us / 4
  local grown = 1 + part + part * part * 0.5
  local square = grown * grown
  return 1 / (square * square)
end

-- Refill: up to the burst less what was lent lately, and never lower than it was.
-- A quota has no rate: neither refill nor pressure.
if quota then
  lent, offered_per_s = 0, 0
else
  lent = min(lent * decay(lent_decay_us), stock_out)
  tokens = max(tokens, min((burst - lent) * MICRO, tokens + rate * elapsed))
  local offered_us = max(2 * burst / rate * 1000000, offered_min_us)
  offered_per_s = offered_per_s * decay(offered_us)
  if fresh then
    offered_per_s = offered_per_s + offered / offered_us * 1000000
  end
end

-- Count k: distinct copies in this window or in the one before, whichever are more.
local this_window = floor(now / k_window_us)
if this_window ~= window then
  k_before = this_window == window + 1 and k_now or 0
  k_now = 0
  window = this_window
end
local counts = fresh and waiting + want > 0
if counts and floor(seen / k_window_us) ~= window then
  k_now = k_now + 1
end
local k = max(k_now, k_before)

-- Serve the waiting, if need be on the overdraft; then lend stock, from real tokens only.
local press = min(1, max(0, (offered_per_s / rate - press_from) / press_span))
local overdraft = quota and 0 or min(stock_out, overdraft_share * burst) * MICRO
local size, stock, grant_id = 0, 0, 0
-- Of a quota the id says of which period the grant is; ids that run ahead of the clock may pass its end.
local next_id = max(now, last_id + 1)
if quota then next_id = max(next_id, period_start) end
if fresh and open_left < MOST_OPEN and not (quota and next_id >= period_end) then
  local give = min(waiting, max(0, floor((tokens + overdraft + ROUNDING) / MICRO)))
  tokens = tokens - give * MICRO
  if give == waiting and want > 0 then
    local shared_by = max(k, k_floor)
    local left = (tokens + ROUNDING) / MICRO
    local most = min(want, burst / shared_by, left / shared_by)
    if press > 0 then
      local chunk = rate >= large_rate and chunk_large_us or chunk_us
      most = max(most, min(own_rate * chunk / 1000000, burst / shared_by, left))
    end
    if not quota then most = min(most, (epsilon - overdraft_share) * burst - stock_out) end
    stock = max(0, floor(most))
    tokens = tokens - stock * MICRO
  end
  size = give + stock
end
local expires_at = 0
if size > 0 then
  expires_at = now + expiry_us
  last_id = next_id
  if quota then
    expires_at = min(expires_at, period_end)
  else
    lent = lent + stock
  end
  grant_id = last_id
  stock_out = stock_out + stock
  next_scan = min(next_scan, expires_at)
  opens = opens .. pack(GRANT, grant_id, expires_at, size, stock, 0)
  open_left = open_left + 1
end

-- How long to refuse: until one token can be given; under pressure longer with k, and spread. A quota refuses until it
-- starts anew, unless stock in other hands may come back before.
local wait, full
if quota then
  wait, full = 0, period_end - now
  local lends = max(now, last_id + 1, period_start) < period_end
  if tokens < MICRO or not lends then
    local elsewhere, at = stock_out, 1
    for _ = 1, open_left do
      local _, held, lent_stock, spent
      _, _, held, lent_stock, spent, at = unpack(GRANT, opens, at)
      elsewhere = elsewhere - max(0, min(lent_stock, held - spent))
    end
    wait = full
    if lends and elsewhere > 0 then wait = max(1000, min(wait, pause_max_us * (0.5 + jitter))) end
  end
else
  wait, full = max(0, (MICRO - (tokens + overdraft)) / rate), (burst_micro - tokens) / rate
  if press > 0 and tokens < MICRO - ROUNDING then
    local pause = press * press * max(pause_min_us, k / rate * 1000000) * (0.5 + jitter)
    wait = max(wait, min(pause_max_us, pause))
  end
end

local needed = now + max(ceil(min(LONGEST_US, full)), expiry_us + grace_us + keep_us)
local renew = needed > forget_at
if renew then forget_at = needed + keep_us end
if stock_out < 0 then return spoiled('a count') end
for i = 1, #gone do redis.call('HDEL', key, gone[i]) end
for i = 1, #changed, 2 do redis.call('HSET', key, changed[i], changed[i + 1]) end
redis.call('HSET', key,
  'bucket', pack(STATE, tokens, now, clock_back, stock_out, lent, offered_per_s, window, k_now, k_before, next_scan,
    last_id, forget_at, period_start, capacity),
  name, pack('<ddBB', max(known_no, ask_no), counts and now or seen, open_left, stones_left) .. opens .. stones)
if renew then redis.call('PEXPIRE', key, ceil((forget_at - now) / 1000)) end
return pack('<ddddddddddd', grant_id, size, k, size > 0 and now or 0, expires_at, tokens / MICRO, ceil(wait / 1000), now,
  clock_back, adopted, credits) .. credited
