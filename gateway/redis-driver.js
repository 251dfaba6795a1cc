/** RedisDriver: the only door to packages whose declarations drag in Node's globals; redis-driver.d.ts says what the gateway uses of them. */
export { Queue } from 'bullmq';
export { addPrioritizedJob } from 'bullmq/dist/esm/scripts/addPrioritizedJob-9.js';
export { Cluster, Redis } from 'ioredis';
