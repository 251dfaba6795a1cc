/** Page: the playground's parts put together: the form, the conversation, and what is seen of all answers at once. */
import { AnswerView } from './answer-view.ts';
import { ApiFault } from './api-fault.ts';
import { chatRequest } from './chat-request.ts';
import { Conversation, type Turn } from './conversation.ts';
import { describeFleetLoad } from './fleet-load.ts';
import { listModels, readFleetLoad } from './gateway-client.ts';
import { KeyField } from './key-field.ts';
import { RateMeter } from './rate-meter.ts';
import { followTheme } from './theme.ts';

const REFRESH_MS = 500;
const BATCHER_REFRESH_MS = 2_000;
const FORM_STORAGE_NAME = 'sluice.playground.form';
/** From the lower end, as far as counts as being there. */
const AT_END_PIXELS = 48;

const form = element('form', HTMLFormElement);
const prompt = element('prompt', HTMLTextAreaElement);
const parameters = element('parameters', HTMLDetailsElement);
const model = element('model', HTMLSelectElement);
const log = element('log', HTMLElement);
const problem = element('problem', HTMLElement);
const own = element('own-rate', HTMLElement);
const batchers = element('batchers', HTMLElement);
const stopAll = element('stop-all', HTMLButtonElement);

const conversation = new Conversation(sessionStorage);
/** Of the answers that are open. */
let meter = new RateMeter();
let views: AnswerView[] = [];
/** The end stays in view until somebody scrolls away from it. */
let isFollowing = true;

// So that its text can be scrolled by keys.
log.tabIndex = 0;
followTheme(element('theme', HTMLSelectElement));
const keyField = new KeyField({
  field: element('key', HTMLInputElement),
  remember: element('remember', HTMLInputElement),
  onChange: () => void offerModels(),
});
restoreForm();
for (const turn of conversation.turns) show(turn);
scrollToEnd();
void offerModels();
setInterval(refresh, REFRESH_MS);
setInterval(() => void showBatchers(), BATCHER_REFRESH_MS);

form.addEventListener('submit', event => {
  event.preventDefault();
  ask();
});
form.addEventListener('change', saveForm);
// A field that is hidden cannot say what is wrong with it. The event does not bubble.
form.addEventListener('invalid', () => parameters.setAttribute('open', ''), { capture: true });
prompt.addEventListener('keydown', event => {
  // Not the Enter that ends the composing of a character.
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
stopAll.addEventListener('click', () => {
  for (const { answer } of views) if (answer.isOpen) void answer.stop(keyField.key);
});
element('clear', HTMLButtonElement).addEventListener('click', () => {
  for (const { answer } of views) if (answer.isOpen) void answer.stop(keyField.key);
  conversation.clear();
  views = [];
  log.replaceChildren();
  complain('');
  prompt.focus();
});
log.addEventListener('scroll', () => {
  isFollowing = log.scrollHeight - log.scrollTop - log.clientHeight < AT_END_PIXELS;
});
// A page may go without another word from here on.
addEventListener('pagehide', () => {
  saveForm();
  conversation.save();
});

function ask(): void {
  const text = prompt.value.trim();
  if (text === '') {
    prompt.focus();
    return;
  }
  if (keyField.key === '') {
    complain('A key is needed: npm start prints one, npx sluice keys create makes one.');
    keyField.focus();
    return;
  }
  if (views.some(({ answer }) => answer.isOpen)) {
    complain('The answer before this one is not done. Wait for its end, or stop it.');
    return;
  }
  complain('');
  meter = new RateMeter();
  const turns: Turn[] = [...conversation.turns, { role: 'user', text }];
  const fields = formTexts();
  const request = chatRequest(fields, turns);
  const answers: Turn = { role: 'assistant', answers: [] };
  conversation.turns = [...turns, answers];
  show(turns.at(-1)!);
  const group = answerGroup();
  for (let count = Number(fields.get('answers') ?? 1); count > 0; count--) {
    const view = addAnswer(group);
    answers.answers.push(view.answer.record);
    void view.answer.send(request, keyField.key);
  }
  prompt.value = '';
  conversation.save();
  scrollToEnd();
}

function show(turn: Turn): void {
  if (turn.role === 'assistant') {
    const group = answerGroup();
    turn.answers = turn.answers.map(record => addAnswer(group, record).answer.record);
    return;
  }
  const article = document.createElement('article');
  article.className = 'question';
  article.setAttribute('aria-label', 'You');
  article.textContent = turn.text;
  log.append(article);
}

function answerGroup(): HTMLElement {
  const group = document.createElement('div');
  group.className = 'answers';
  log.append(group);
  return group;
}

function addAnswer(group: HTMLElement, record?: AnswerView['answer']['record']): AnswerView {
  const view = new AnswerView({
    record,
    key: () => keyField.key,
    onChange: () => {
      conversation.saveSoon();
      if (isFollowing) scrollToEnd();
    },
    onTokens: count => meter.add(count, performance.now()),
  });
  views.push(view);
  group.append(view.element);
  return view;
}

/** What changes by the passing of time alone. */
function refresh(): void {
  const open = views.filter(({ answer }) => answer.isOpen);
  for (const view of open) view.render();
  const rate = meter.rate(performance.now());
  const answers = open.length === 1 ? 'one open answer' : `${open.length} open answers`;
  own.textContent = open.length === 0 ? 'no open answer' : `${rate?.toFixed(1) ?? '–'} tokens/s, ${answers} together`;
  stopAll.hidden = open.length < 2;
}

/** Only for the operator; to others the gateway does not say it. */
async function showBatchers(): Promise<void> {
  if (keyField.key === '' || document.hidden || batchers.dataset.key === keyField.key) return;
  try {
    const load = await readFleetLoad(keyField.key);
    batchers.hidden = load === undefined;
    // A key that is not told it will not be told the next time either.
    if (load === undefined) batchers.dataset.key = keyField.key;
    else batchers.textContent = describeFleetLoad(load);
  } catch {
    batchers.hidden = true;
  }
}

async function offerModels(): Promise<void> {
  if (keyField.key === '') return;
  try {
    const names = await listModels(keyField.key);
    const chosen = model.value;
    model.replaceChildren(...['default', ...names].map(name => new Option(name, name)));
    if (names.includes(chosen)) model.value = chosen;
    complain('');
  } catch (error) {
    if (error instanceof ApiFault) complain([error.message, error.details].filter(Boolean).join(' — '));
    else complain('The gateway was not reached.');
  }
}

function complain(text: string): void {
  problem.textContent = text;
  problem.hidden = text === '';
}

function formTexts(): Map<string, string> {
  return new Map(Array.from(new FormData(form), ([name, value]) => [name, String(value)]));
}

function saveForm(): void {
  sessionStorage.setItem(FORM_STORAGE_NAME, JSON.stringify([...formTexts()]));
}

function offerModel(name: string): void {
  model.value = name;
  if (model.value !== name) model.append(new Option(name, name, true, true));
}

function restoreForm(): void {
  const kept = sessionStorage.getItem(FORM_STORAGE_NAME);
  if (kept === null) return;
  for (const [name, value] of JSON.parse(kept) as [string, string][]) {
    const field = form.elements.namedItem(name);
    // The model's own list comes later.
    if (field === model) offerModel(value);
    else if (field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement || field instanceof HTMLSelectElement) {
      field.value = value;
    }
  }
}

function scrollToEnd(): void {
  isFollowing = true;
  log.scrollTop = log.scrollHeight;
}

function element<T extends HTMLElement>(id: string, type: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`The page has no ${type.name} "${id}".`);
  return found;
}
