import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { startGateway } from '../gateway-server.ts';
import { startRedis } from '../redis-server.ts';
const cpuMs = (pid: number) => { const f = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' '); return (Number(f[11]) + Number(f[12])) * 10; };
const redis = await startRedis(); const g = await startGateway({ redisUrl: redis.url, bindings: { SLUICE_ACCESS_LOG: 'off' } });
const r = new Redis(redis.url);
const card = () => r.hset('sluice:batchers', 'b', JSON.stringify({ version: 1, batcherId: 'b', model: 'm', contextTokens: 100000, writtenAt: Date.now(), startedAt: 1, state: 'serving', runningCount: 0, waitingCount: 0, maxRunningCount: 1, kvCapacityTokens: 1, kvUsedTokens: 0, prefillTokensPerSecond: 0, decodeTokensPerSecond: 0 }));
await card(); setInterval(card, 1000).unref();
const w = new Worker('generate', null, { connection: { url: redis.url, maxRetriesPerRequest: null }, prefix: 'sluice:{m}', autorun: false }); await w.waitUntilReady();
const N = 256, STEPS = Number(process.argv[2] ?? 100);
const open = () => new Promise<number>((resolve, reject) => { const s = connect(g.port, '127.0.0.1'); const body = JSON.stringify({ model: 'm', stream: true, messages: [{ role: 'user', content: 'hi' }] }); s.write(`POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${g.key}\r\ncontent-length: ${body.length}\r\n\r\n${body}`); let n = 0, tail = ''; s.on('data', d => { n += d.length; tail = (tail + d.toString('latin1')).slice(-40); if (tail.includes('[DONE]')) { s.destroy(); resolve(n); } }); s.on('error', reject); });
const c0 = cpuMs(g.pid); let t0 = Date.now();
const all = Array.from({ length: N }, open);
const jobs: any[] = []; while (jobs.length < N) { const j = await w.getNextJob('t', { block: false }); if (j) jobs.push(j); else await new Promise(r => setTimeout(r, 2)); }
console.log('admitted', N, 'cpu/req ms', ((cpuMs(g.pid) - c0) / N).toFixed(2), 'wall', Date.now() - t0);
const c1 = cpuMs(g.pid); t0 = Date.now();
const shard = jobs[0].data.shard;
for (let s = 0; s <= STEPS + 1; s++) {
  const ev = jobs.map(j => s === 0 ? { type: 'accepted', id: j.id, attempt: 1, seq: 0, promptTokens: 1 } : s <= STEPS ? { type: 'delta', id: j.id, attempt: 1, seq: s, choice: 0, tokenIds: [s], text: ' token', ...(s === STEPS && { finishReason: 'stop' }) } : { type: 'finish', id: j.id, attempt: 1, seq: s, usage: { promptTokens: 1, completionTokens: STEPS, cachedTokens: 0 }, timings: { queueMs: 0, prefillMs: 0, ttftMs: 0, decodeTokensPerSecond: 0 } });
  await r.xadd(`sluice:out:{${shard}}`, '*', 'e', JSON.stringify(ev));
}
await Promise.all(all);
const wall = Date.now() - t0, cpu = cpuMs(g.pid) - c1;
console.log('tokens', N * STEPS, 'wall', wall, 'tok/s', Math.round(N * STEPS / wall * 1000), 'workerd cpu ms', cpu, '=> tok per cpu-second', Math.round(N * STEPS / cpu * 1000));
const c2 = cpuMs(g.pid); t0 = Date.now();
for (let i = 0; i < 20; i++) await Promise.all(Array.from({ length: 50 }, async () => { const x = await fetch(`${g.url}/v1/chat/completions`, { method: 'POST', body: '{}' }); await x.text(); }));
console.log('1000 refusals wall', Date.now() - t0, 'cpu', cpuMs(g.pid) - c2);
console.log(g.output().slice(0, 500));
r.disconnect(); await w.close(true); await g.stop(); await redis.stop(); process.exit(0);
