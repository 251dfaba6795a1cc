/** A batch on the whole product with the real model, by OpenAI's Python client, while a batcher is killed and somebody else waits for an answer. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Product, textOf, user } from './product.ts';
import { pythonPath, runPython } from './python-packages.ts';

const COUNTRIES = ['France', 'Italy', 'Japan', 'Egypt', 'Peru', 'Kenya', 'Norway', 'Chile', 'Spain', 'Greece', 'Poland', 'Turkey'];
const question = (country: string) => `Tell me about ${country} in five sentences.`;

const PROGRAM = `
import io, json, sys, time, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=5)
lines = [{'custom_id': name, 'method': 'POST', 'url': '/v1/chat/completions', 'body': {
    'model': 'default', 'temperature': 0, 'seed': 1, 'max_tokens': 80, 'messages': [{'role': 'user', 'content': text}]}}
    for name, text in json.loads(sys.argv[3])]
data = io.BytesIO('\\n'.join(json.dumps(line) for line in lines).encode())
file = client.files.create(file=('countries.jsonl', data), purpose='batch')
batch = client.batches.create(input_file_id=file.id, endpoint='/v1/chat/completions', completion_window='24h', metadata={'of': 'python'})
seen = set()
while batch.status not in ('completed', 'failed', 'expired', 'cancelled'):
    time.sleep(0.2)
    batch = client.batches.retrieve(batch.id)
    seen.add(batch.request_counts.completed)
results = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
print(json.dumps({
    'status': batch.status,
    'counts': batch.request_counts.to_dict(),
    'metadata': batch.metadata,
    'isGradual': len(seen) > 2,
    'texts': {one['custom_id']: one['response']['body']['choices'][0]['message']['content'] for one in results},
    'listed': [one.id for one in client.batches.list(limit=1)] == [batch.id],
    'deleted': client.files.delete(file.id).deleted,
}))`;

let product: Product;
beforeAll(async () => {
  product = await Product.start({ batcherCount: 2, batcherArguments: ['--threads', '1'], bindings: { SLUICE_CACHE_TTL_MS: '0' } });
}, 300_000);
afterAll(() => product.stop());

it('each request is answered once, as it is alone', async () => {
  const path = await pythonPath('openai==3.57.0');
  const alone = textOf(await product.chat({ messages: [user(question('France'))], seed: 1, max_tokens: 80 }));
  const asked = COUNTRIES.map(country => [country, question(country)]);
  const python = runPython(PROGRAM, { path, args: [product.baseUrl, product.key, JSON.stringify(asked)] });
  while ((await product.runningCount()) < 4) await new Promise(resolve => setTimeout(resolve, 50));
  const [pid] = product.batcherPids;
  process.kill(pid!, 'SIGKILL');
  const reply = await product.chat({ messages: [user('What is the capital of France? Answer in one sentence.')] });
  expect(textOf(reply)).toBe('The capital of France is Paris.');
  const { texts, ...rest } = JSON.parse(await python);
  expect(rest).toEqual({
    ...{ status: 'completed', counts: { total: 12, completed: 12, failed: 0 }, metadata: { of: 'python' } },
    ...{ isGradual: true, listed: true, deleted: true },
  });
  expect(Object.keys(texts).sort()).toEqual([...COUNTRIES].sort());
  expect(texts.France).toBe(alone);
  await product.idle();
});
