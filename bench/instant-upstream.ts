/**
 * InstantUpstream: a program that stands in for an OpenAI-compatible server whose computing takes no time, for gateways that proxy to one:
 * every chat completion is a stream of as many tokens as it asks for, a frame each, all written at once. Argument: its port.
 */
import http from 'node:http';
import { TOKEN_TEXT } from './token-text.ts';

const HEAD = { id: 'chatcmpl-instant', object: 'chat.completion.chunk', created: 1_700_000_000, model: 'default' };
const frame = (delta: object, finishReason: string | null) =>
  `data: ${JSON.stringify({ ...HEAD, choices: [{ index: 0, delta, logprobs: null, finish_reason: finishReason }] })}\n\n`;
const ROLE = frame({ role: 'assistant', content: '' }, null);
const TOKEN = frame({ content: TOKEN_TEXT }, null);
const END = `${frame({}, 'length')}data: [DONE]\n\n`;

const server = http.createServer((request, response) => {
  let text = '';
  request.setEncoding('utf8').on('data', piece => {
    text += piece;
  });
  request.on('end', () => {
    const { max_tokens: tokenCount = 1 } = JSON.parse(text || '{}') as { max_tokens?: number };
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
    response.write(ROLE);
    for (let index = 0; index < tokenCount; index++) response.write(TOKEN);
    response.end(END);
  });
});
server.keepAliveTimeout = 60_000;
server.listen(Number(process.argv[2]), '127.0.0.1', () => process.stdout.write('ready\n'));
