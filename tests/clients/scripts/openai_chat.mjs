// The official `openai` client for Node, over chat.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import * as trying from "./trying.mjs";

const client = new OpenAI({ baseURL: trying.BASE_URL, apiKey: trying.API_KEY });
const completions = client.chat.completions;
const asked = { model: trying.MODEL, temperature: 0 };
const tool = { name: "get_weather", parameters: trying.WEATHER_SCHEMA };
const withTool = { ...asked, tools: [{ type: "function", function: tool }] };
const user = (content) => ({ role: "user", content });

async function chat() {
  const answer = await completions.create({ ...asked, messages: [user(trying.SUM)] });
  trying.holds(answer.choices[0].message.content, trying.SUM_RESULT);
  trying.check(answer.usage.completion_tokens > 0, "no usage");
}

async function stream() {
  const options = { stream: true, stream_options: { include_usage: true } };
  const events = await completions.create({ ...asked, ...options, messages: [user(trying.SUM)] });
  const chunks = [];
  for await (const chunk of events) chunks.push(chunk);
  trying.holds(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), trying.SUM_RESULT);
  trying.check(chunks.length > 3 && chunks.at(-1).usage.total_tokens > 0, "no stream with usage");
}

async function structured() {
  const person = z.object({ name: z.string(), age: z.number().int() });
  const answer = await completions.parse({
    ...asked,
    messages: [user(trying.PERSON)],
    response_format: zodResponseFormat(person, "person"),
  });
  trying.isPerson(answer.choices[0].message.parsed);
}

async function tools() {
  const messages = [user(trying.WEATHER)];
  const { message, finish_reason } = (await completions.create({ ...withTool, messages })).choices[0];
  trying.check(finish_reason === "tool_calls", `it ended by ${finish_reason}`);
  const [call] = message.tool_calls;
  const content = trying.weather(JSON.parse(call.function.arguments).city);
  messages.push(message, { role: "tool", tool_call_id: call.id, content });
  const answer = await completions.create({ ...withTool, messages });
  trying.holds(answer.choices[0].message.content, trying.DEGREES);
  const streamed = completions.stream({ ...withTool, messages: [user(trying.WEATHER)] });
  const [again] = (await streamed.finalMessage()).tool_calls;
  trying.weather(JSON.parse(again.function.arguments).city);
}

async function history() {
  const messages = [user(trying.SUM)];
  const first = await completions.create({ ...asked, messages });
  messages.push(first.choices[0].message, user(trying.OTHER_SUM));
  const second = await completions.create({ ...asked, messages });
  trying.holds(second.choices[0].message.content, trying.OTHER_RESULT);
}

async function embeddings() {
  const input = [trying.SUM, trying.PERSON];
  const answer = await client.embeddings.create({ model: trying.EMBEDDING_MODEL, input });
  trying.areVectors(answer.data.map((each) => each.embedding));
}

async function refusal() {
  const wrong = completions.create({ ...asked, messages: [user(trying.SUM)], store: true });
  return trying.refused(await trying.caught(wrong), OpenAI.BadRequestError, "store");
}

await trying.tryAll(chat, stream, structured, tools, history, embeddings, refusal);
