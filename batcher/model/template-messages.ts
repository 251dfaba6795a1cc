/**
 * TemplateMessages: a request's messages as chat templates expect them, for templates with fewer skills too. What a template cannot
 * express is written as text in the turn where it belongs, in the form that most open models are trained on:
 *
 * - tools, where the template has no word for them: their JSON at the end of the system turn, and how to call them;
 * - an assistant's tool calls: as the model is to write them, behind its content;
 * - several calls at once, where the template takes one: each in a turn of its own, followed by its result;
 * - a tool's result, where the template refuses the role: `<tool_response>…</tool_response>` in a user turn;
 * - a system turn, where the template refuses or drops it: in front of the first user turn.
 */
import { createHash } from 'node:crypto';
import type { ChatMessage, Tool } from '../../shared/job.ts';
import { type ToolSyntax, writtenCalls } from '../tools/tool-format.ts';

/** What a template can express by itself, found out by trying it. */
export interface TemplateSkills {
  systemRole: boolean;
  toolRole: boolean;
  toolCalls: boolean;
  /** More than one in a message. */
  severalCalls: boolean;
  /** Ids of calls are taken as they are; some models know those of nine letters and digits only. */
  anyCallIds: boolean;
  tools: boolean;
}

/** A message as templates see it; keys as in Hugging Face's chat format. */
export interface TemplateMessage {
  role: string;
  content: string;
  name?: string;
  tool_calls?: { id: string; type: 'function'; function: { name: string; arguments: unknown } }[];
  tool_call_id?: string;
  reasoning_content?: string;
}

/** Contents are the client's own text still; nothing is guarded yet. */
export function templateMessages(
  messages: readonly ChatMessage[],
  tools: readonly Tool[] | undefined,
  model: { skills: TemplateSkills; syntax: ToolSyntax },
): TemplateMessage[] {
  const { skills, syntax } = model;
  const turns = skills.toolCalls && !skills.severalCalls ? singleCalls(messages) : messages;
  const result = turns.map(message => templateMessage(message, model));
  if (tools !== undefined && tools.length > 0 && !skills.tools) describeTools(result, tools, syntax);
  return skills.systemRole ? result : foldSystemTurns(result);
}

function templateMessage(message: ChatMessage, { skills, syntax }: { skills: TemplateSkills; syntax: ToolSyntax }): TemplateMessage {
  const callId = (id: string): string => (skills.anyCallIds ? id : shortCallId(id));
  const { role, content, toolCalls } = message;
  const text = content ?? '';
  if (role === 'tool' && !skills.toolRole) return { role: 'user', content: `<tool_response>\n${text}\n</tool_response>` };
  const result: TemplateMessage = { role, content: text };
  if (message.name !== undefined) result.name = message.name;
  if (message.reasoning !== undefined) result.reasoning_content = message.reasoning;
  if (message.toolCallId !== undefined) result.tool_call_id = callId(message.toolCallId);
  if (toolCalls === undefined || toolCalls.length === 0) return result;
  const calls = toolCalls.map(call => ({
    id: callId(call.id),
    type: call.type,
    function: { name: call.function.name, arguments: parsedArguments(call.function.arguments) },
  }));
  if (skills.toolCalls) return { ...result, tool_calls: calls };
  const spelled = writtenCalls(
    syntax,
    calls.map(({ id, function: called }) => ({ id: shortCallId(id), ...called })),
  );
  return { ...result, content: text === '' ? spelled : `${text}\n${spelled}` };
}

/** Each call in a turn of its own, and behind it its result where there is one. */
function singleCalls(messages: readonly ChatMessage[]): ChatMessage[] {
  const result: ChatMessage[] = [];
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at]!;
    const { toolCalls = [] } = message;
    if (toolCalls.length < 2) {
      result.push(message);
      continue;
    }
    const results: ChatMessage[] = [];
    while (messages[at + 1]?.role === 'tool') results.push(messages[++at]!);
    const { content, reasoning, ...rest } = message;
    const said = { content, ...(reasoning !== undefined && { reasoning }) };
    for (const [index, call] of toolCalls.entries()) {
      result.push({ ...rest, ...(index === 0 ? said : { content: null }), toolCalls: [call] });
      result.push(...results.filter(({ toolCallId }) => toolCallId === call.id));
    }
    const ids = new Set(toolCalls.map(call => call.id));
    result.push(...results.filter(({ toolCallId }) => toolCallId === undefined || !ids.has(toolCallId)));
  }
  return result;
}

const SHORT_ID = /^[a-zA-Z0-9]{9}$/;

/** Nine letters and digits; the same for the same id. */
function shortCallId(id: string): string {
  if (SHORT_ID.test(id)) return id;
  return createHash('sha256').update(id).digest('base64').replace(/[+/=]/g, '').slice(0, 9).padEnd(9, '0');
}

/** Templates take arguments as an object; a client may send what is none, which then stays text. */
function parsedArguments(json: string): unknown {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'object' && value !== null ? value : json;
  } catch {
    return json;
  }
}

function describeTools(messages: TemplateMessage[], tools: readonly Tool[], syntax: ToolSyntax): void {
  const example = writtenCalls(syntax, [{ id: shortCallId(''), name: 'function name', arguments: {} }]);
  const form =
    syntax.named === undefined
      ? "a JSON object of the function's name and arguments"
      : "the function's name and a JSON object of its arguments";
  const list = tools.map(tool => JSON.stringify(tool)).join('\n');
  const text =
    `You may call functions to help with the user's request. These are available, each with a JSON schema of its arguments:\n` +
    `<tools>\n${list}\n</tools>\n` +
    `For each call, answer with ${form}:\n${example}`;
  const first = messages[0];
  if (first?.role === 'system') first.content = first.content === '' ? text : `${first.content}\n\n${text}`;
  else messages.unshift({ role: 'system', content: text });
}

/** Each system turn goes in front of the next user turn; one without goes as a user turn of its own. */
function foldSystemTurns(messages: readonly TemplateMessage[]): TemplateMessage[] {
  const result: TemplateMessage[] = [];
  let pending: string[] = [];
  for (const message of messages) {
    if (message.role === 'system') {
      pending.push(message.content);
    } else if (message.role === 'user' && pending.length > 0) {
      result.push({ ...message, content: [...pending, message.content].join('\n\n') });
      pending = [];
    } else {
      result.push(message);
    }
  }
  if (pending.length > 0) result.push({ role: 'user', content: pending.join('\n\n') });
  return result;
}
