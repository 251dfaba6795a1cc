--[[
  Makes an attempt the owner of a job's record and hands it what is there: from now on earlier attempts are refused.

  KEYS[1]  record of the job
  KEYS[2]  fence of the job
  KEYS[3]  cancel flag of the job

  ARGV[1]  attempt
  ARGV[2]  lifetime of record and fence in ms, from now

  Output: { 'fenced' | 'cancelled' | 'ok', event JSON… }
]]
local attempt = tonumber(ARGV[1])
if tonumber(redis.call('GET', KEYS[2]) or '0') > attempt then
  return { 'fenced' }
end
redis.call('SET', KEYS[2], attempt, 'PX', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local answer = { 'ok' }
if redis.call('EXISTS', KEYS[3]) == 1 then
  answer[1] = 'cancelled'
end
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do
  answer[#answer + 1] = entry[2][2]
end
return answer
