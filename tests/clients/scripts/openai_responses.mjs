// The official `openai` client for Node, over Responses.

import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import * as trying from "./trying.mjs";

const { responses } = new OpenAI({ baseURL: trying.BASE_URL, apiKey: trying.API_KEY });
const asked = { model: trying.MODEL, temperature: 0 };
const tool = { type: "function", name: "get_weather", parameters: trying.WEATHER_SCHEMA, strict: true };
const withTool = { ...asked, tools: [tool] };
const user = (content) => ({ role: "user", content });

async function chat() {
  const answer = await responses.create({ ...asked, input: trying.SUM });
  trying.holds(answer.output_text, trying.SUM_RESULT);
  trying.check(answer.usage.output_tokens > 0, "no usage");
}

async function stream() {
  const events = [];
  for await (const event of await responses.create({ ...asked, input: trying.SUM, stream: true })) {
    events.push(event);
  }
  const pieces = events.filter((event) => event.type === "response.output_text.delta");
  trying.holds(pieces.map((event) => event.delta).join(""), trying.SUM_RESULT);
  trying.check(pieces.length > 1 && events.at(-1).response.usage.total_tokens > 0, "no stream");
}

async function structured() {
  const person = z.object({ name: z.string(), age: z.number().int() });
  const text = { format: zodTextFormat(person, "person") };
  const answer = await responses.parse({ ...asked, input: trying.PERSON, text });
  trying.isPerson(answer.output_parsed);
}

async function tools() {
  const input = [user(trying.WEATHER)];
  const called = await responses.create({ ...withTool, input });
  const [call] = called.output.filter((item) => item.type === "function_call");
  const output = trying.weather(JSON.parse(call.arguments).city);
  input.push(...called.output, { type: "function_call_output", call_id: call.call_id, output });
  const answer = await responses.create({ ...withTool, input });
  trying.holds(answer.output_text, trying.DEGREES);
  const streamed = responses.stream({ ...withTool, input: [user(trying.WEATHER)] });
  const [again] = (await streamed.finalResponse()).output;
  trying.weather(JSON.parse(again.arguments).city);
}

async function history() {
  const first = await responses.create({ ...asked, input: trying.SUM });
  const input = [user(trying.SUM), ...first.output, user(trying.OTHER_SUM)];
  const second = await responses.create({ ...asked, input });
  trying.holds(second.output_text, trying.OTHER_RESULT);
}

async function refusal() {
  const wrong = responses.create({ ...asked, input: trying.SUM, previous_response_id: "resp_1" });
  return trying.refused(await trying.caught(wrong), OpenAI.BadRequestError, "previous_response_id");
}

await trying.tryAll(chat, stream, structured, tools, history, refusal);
