/**
 * TemplateMessages: a request's messages as chat templates expect them, for templates with fewer skills too. What a template cannot
 * express is written as text in the turn where it belongs, in the form that most open models are trained on:
 *
 * - tools, where the template has no word for them: their JSON at the end of the system turn;
 * - an assistant's tool calls: `<tool_call>{"name": …, "arguments": …}</tool_call>` behind its content;
 * - a tool's result, where the template refuses the role: `<tool_response>…</tool_response>` in a user turn;
 * - a system turn, where the template refuses or drops it: in front of the first user turn.
 */
import type { ChatMessage } from '../../shared/job.ts';

/** What a template can express by itself, found out by trying it. */
export interface TemplateSkills {
  systemRole: boolean;
  toolRole: boolean;
  toolCalls: boolean;
  tools: boolean;
}

/** A message as templates see it; keys as in Hugging Face's chat format. */
export interface TemplateMessage {
  role: string;
  content: string;
  name?: string;
  tool_calls?: { id: string; type: 'function'; function: { name: string; arguments: unknown } }[];
  tool_call_id?: string;
}

/** Contents are the client's own text still; nothing is guarded yet. */
export function templateMessages(
  messages: readonly ChatMessage[],
  tools: readonly unknown[] | undefined,
  skills: TemplateSkills,
): TemplateMessage[] {
  const result = messages.map(message => templateMessage(message, skills));
  if (tools !== undefined && tools.length > 0 && !skills.tools) describeTools(result, tools);
  return skills.systemRole ? result : foldSystemTurns(result);
}

function templateMessage(message: ChatMessage, skills: TemplateSkills): TemplateMessage {
  const { role, content, toolCalls } = message;
  const text = content ?? '';
  if (role === 'tool' && !skills.toolRole) return { role: 'user', content: `<tool_response>\n${text}\n</tool_response>` };
  const result: TemplateMessage = { role, content: text };
  if (message.name !== undefined) result.name = message.name;
  if (message.toolCallId !== undefined) result.tool_call_id = message.toolCallId;
  if (toolCalls === undefined || toolCalls.length === 0) return result;
  const calls = toolCalls.map(call => ({
    id: call.id,
    type: call.type,
    function: { name: call.function.name, arguments: parsedArguments(call.function.arguments) },
  }));
  if (skills.toolCalls) return { ...result, tool_calls: calls };
  const spelled = calls.map(call => `<tool_call>\n${JSON.stringify(call.function)}\n</tool_call>`);
  return { ...result, content: [...(text === '' ? [] : [text]), ...spelled].join('\n') };
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

function describeTools(messages: TemplateMessage[], tools: readonly unknown[]): void {
  const list = tools.map(tool => JSON.stringify(tool)).join('\n');
  const text =
    `You may call functions to help with the user's request. These are available, each with a JSON schema of its arguments:\n` +
    `<tools>\n${list}\n</tools>\n` +
    `For each call, answer with a JSON object of the function's name and arguments:\n` +
    `<tool_call>\n{"name": "function name", "arguments": {}}\n</tool_call>`;
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
