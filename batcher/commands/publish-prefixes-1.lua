--[[
  Brings what a batcher holds from one state to the next, or keeps it alive. Sent twice, it does its work once.

  KEYS[1]  prefixes of the batcher (hash: text-block hash to tokens, and `head`, the state)

  ARGV[1]  state afterwards
  ARGV[2]  state before; '' begins with nothing
  ARGV[3]  lifetime in ms, from now
  ARGV[4]  number of text blocks added
  ARGV[5…] hash and tokens of each of these in turn, then the hashes evicted

  Output: 'ok', or 'behind' when neither state is the stored one, which is then left alone
]]
local head = redis.call('HGET', KEYS[1], 'head')
if head ~= ARGV[1] then
  if ARGV[2] == '' then
    redis.call('DEL', KEYS[1])
  elseif head ~= ARGV[2] then
    return 'behind'
  end
  local evicted = 5 + 2 * tonumber(ARGV[4])
  for i = 5, evicted - 1, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
  for i = evicted, #ARGV do
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
  redis.call('HSET', KEYS[1], 'head', ARGV[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 'ok'
