--[[
  Appends events of one attempt to a job's record. Refuses an attempt that a later one has fenced off; repeats are dropped,
  so that a command sent twice over a broken connection does no harm; so is what would leave a gap behind a record of which Redis has lost the end.
  Without events it only asks.

  KEYS[1]  record of the job (stream; entry id is `<seq + 1>-0`)
  KEYS[2]  fence of the job (attempt that owns the record)
  KEYS[3]  cancel flag of the job

  ARGV[1]  attempt
  ARGV[2]  lifetime of record and fence in ms, from now
  ARGV[3]  '1': they are given it; '0': only where they have none of this attempt's yet
  ARGV[4…] seq and event JSON, in turn

  Output: 'fenced', 'behind', 'cancelled' or 'ok'
]]
local attempt = tonumber(ARGV[1])
local fence, cancelled = unpack(redis.call('MGET', KEYS[2], KEYS[3]))
local owner = tonumber(fence or '0')
if owner > attempt then
  return 'fenced'
end
if #ARGV > 3 then
  local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
  local held = 0
  if #last > 0 then
    held = tonumber(string.match(last[1][1], '^(%d+)'))
  end
  if tonumber(ARGV[4]) > held then
    return 'behind'
  end
  for i = 4, #ARGV, 2 do
    local entry = tonumber(ARGV[i]) + 1
    if entry > held then
      redis.call('XADD', KEYS[1], entry .. '-0', 'e', ARGV[i + 1])
    end
  end
  if ARGV[3] == '1' or held == 0 or owner < attempt then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    redis.call('SET', KEYS[2], attempt, 'PX', ARGV[2])
  end
end
if cancelled then
  return 'cancelled'
end
return 'ok'
