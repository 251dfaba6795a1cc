/** ChatClients: libraries that people call OpenAI's API with, unchanged but for base URL and key, behind one narrow interface for tests. */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import type { UsageMetadata } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { APICallError, generateText, RetryError, streamText } from 'ai';
import OpenAI from 'openai';

export interface ChatClientOptions {
  /** Up to and with /v1. */
  baseUrl: string;
  key: string;
  maxRetries: number;
  /** In place of the global one. */
  fetch?: typeof fetch;
}

export interface Ask {
  content: string;
  model?: string;
  temperature?: number;
  signal?: AbortSignal;
}

export interface ChatClient {
  /** Throws the library's own error. */
  whole(ask: Ask): Promise<{ text: string; completionTokens: number | undefined }>;
  /** Pieces of text as they come; throws the library's own error. */
  stream(ask: Ask): AsyncIterable<string>;
  /** HTTP status that an error of the library tells. */
  statusOf(error: unknown): number | undefined;
}

export const CHAT_CLIENTS: Readonly<Record<string, (options: ChatClientOptions) => ChatClient>> = {
  openai: openaiClient,
  '@ai-sdk/openai-compatible': aiSdkClient,
  '@langchain/openai': langchainClient,
};

function openaiClient({ baseUrl, key, maxRetries, ...more }: ChatClientOptions): ChatClient {
  const client = new OpenAI({ baseURL: baseUrl, apiKey: key, maxRetries, ...more });
  const body = ({ content, model = 'default', temperature = 0 }: Ask) => ({
    ...{ model, temperature, messages: [{ role: 'user' as const, content }] },
  });
  return {
    async whole(ask) {
      const reply = await client.chat.completions.create(body(ask), { signal: ask.signal ?? null });
      return { text: reply.choices[0]!.message.content ?? '', completionTokens: reply.usage?.completion_tokens };
    },
    async *stream(ask) {
      const stream = await client.chat.completions.create({ ...body(ask), stream: true }, { signal: ask.signal ?? null });
      for await (const chunk of stream) if (chunk.choices[0]?.delta.content) yield chunk.choices[0].delta.content;
    },
    statusOf: error => (error instanceof OpenAI.APIError ? error.status : undefined),
  };
}

function aiSdkClient({ baseUrl, key, maxRetries, ...more }: ChatClientOptions): ChatClient {
  const provider = createOpenAICompatible({ name: 'sluice', baseURL: baseUrl, apiKey: key, ...more });
  const call = ({ content, model = 'default', temperature = 0, signal }: Ask) => ({
    ...{ model: provider.chatModel(model), temperature, prompt: content, maxRetries },
    ...(signal !== undefined && { abortSignal: signal }),
  });
  return {
    async whole(ask) {
      const { text, usage } = await generateText(call(ask));
      return { text, completionTokens: usage.outputTokens };
    },
    async *stream(ask) {
      // Errors are parts of the stream; by themselves they would only be logged.
      const { fullStream } = streamText({ ...call(ask), onError: () => undefined });
      for await (const part of fullStream) {
        if (part.type === 'text-delta') yield part.text;
        if (part.type === 'error') throw part.error;
      }
    },
    statusOf(error) {
      const last = RetryError.isInstance(error) ? error.lastError : error;
      return APICallError.isInstance(last) ? last.statusCode : undefined;
    },
  };
}

function langchainClient({ baseUrl, key, maxRetries, ...more }: ChatClientOptions): ChatClient {
  const model = (ask: Ask) =>
    new ChatOpenAI({
      ...{ apiKey: key, maxRetries, configuration: { baseURL: baseUrl, ...more } },
      ...{ model: ask.model ?? 'default', temperature: ask.temperature ?? 0 },
    });
  const options = ({ signal }: Ask) => (signal === undefined ? {} : { signal });
  return {
    async whole(ask) {
      const reply = await model(ask).invoke(ask.content, options(ask));
      return { text: reply.text, completionTokens: (reply.usage_metadata as UsageMetadata | undefined)?.output_tokens };
    },
    async *stream(ask) {
      for await (const chunk of await model(ask).stream(ask.content, options(ask))) if (chunk.text !== '') yield chunk.text;
    },
    statusOf: error => (error as { status?: number }).status,
  };
}
