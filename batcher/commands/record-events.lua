--[[
  Appends events of attempts at some jobs to the records of those jobs, and tells the streams that brokers read what is recorded.
  Refuses an attempt that a later one has fenced off; repeats are not recorded again, so that a command sent twice over a broken connection
  does no harm; what would leave a gap behind a record of which Redis has lost the end is recorded and told as little as the former.
  Of a job without events it only asks how it stands.

  KEYS     of each job in turn: record (stream; entry id is `<seq + 1>-0`, without a gap from 1 on), fence (attempt that owns the record),
           cancel flag; then the streams to tell

  ARGV[1]  number of jobs
  ARGV[2]  lifetime of the streams to tell in ms, from now
  ARGV[3]  entries that such a stream keeps, about
  ARGV[4…] of each job in turn:
             attempt
             lifetime of record and fence in ms, from now
             '1': they are given it; '0': only where they have none of this attempt's yet
             which of the streams is told, from 1; 0 for none
             a character for each event: '1' where the stream is told of it
             seq of the first event
             each event's JSON

  Output: of each job 'ok', 'cancelled', 'fenced', 'behind', or 'broken' where its record is of another type
]]
local told = {}

local function record(keys, at, eventCount)
  local attempt = tonumber(ARGV[at])
  local fence, cancelled = unpack(redis.call('MGET', KEYS[keys + 1], KEYS[keys + 2]))
  local owner = tonumber(fence or '0')
  if owner > attempt then
    return 'fenced'
  end
  if eventCount > 0 then
    local held = redis.pcall('XLEN', KEYS[keys])
    if type(held) == 'table' then
      return string.find(held.err, 'WRONGTYPE', 1, true) and 'broken' or error(held.err)
    end
    local first = tonumber(ARGV[at + 5])
    if first > held then
      return 'behind'
    end
    for i = held - first + 1, eventCount do
      redis.call('XADD', KEYS[keys], (first + i) .. '-0', 'e', ARGV[at + 5 + i])
    end
    if ARGV[at + 2] == '1' or held == 0 or owner < attempt then
      redis.call('PEXPIRE', KEYS[keys], ARGV[at + 1])
      redis.call('SET', KEYS[keys + 1], attempt, 'PX', ARGV[at + 1])
    end
    local stream = tonumber(ARGV[at + 3])
    if stream > 0 then
      told[stream] = told[stream] or {}
      for i = 1, eventCount do
        if string.sub(ARGV[at + 4], i, i) == '1' then
          table.insert(told[stream], ARGV[at + 5 + i])
        end
      end
    end
  end
  return cancelled and 'cancelled' or 'ok'
end

local jobCount = tonumber(ARGV[1])
local standings = {}
local at = 4
for job = 1, jobCount do
  local eventCount = #ARGV[at + 4]
  standings[job] = record(3 * job - 2, at, eventCount)
  at = at + 6 + eventCount
end
for stream = 1, #KEYS - 3 * jobCount do
  if told[stream] and #told[stream] > 0 then
    local key = KEYS[3 * jobCount + stream]
    redis.call('XADD', key, 'MAXLEN', '~', ARGV[3], '*', 'e', '[' .. table.concat(told[stream], ',') .. ']')
    redis.call('PEXPIRE', key, ARGV[2])
  end
end
return standings
