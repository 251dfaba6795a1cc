--[[
  Takes a batcher's own queue off the list of those to be looked after, and what is left of it out of Redis, if nothing is in it.

  KEYS[1]  set of the ids of batchers that have own queues
  KEYS[2]  list of the waiting that came back
  KEYS[3]  sorted set of the waiting
  KEYS[4]  list of those that are worked on
  KEYS[5]  queue's prefix of key names, with its colon

  ARGV[1]  batcher id

  Output: 1 when it is gone, 0 when it is in use
]]
if redis.call('LLEN', KEYS[2]) + redis.call('ZCARD', KEYS[3]) + redis.call('LLEN', KEYS[4]) > 0 then
  return 0
end
redis.call('SREM', KEYS[1], ARGV[1])
for _, structure in ipairs({ 'meta', 'id', 'events', 'marker', 'pc', 'stalled', 'stalled-check' }) do
  redis.call('DEL', KEYS[5] .. structure)
end
return 1
