// What Vercel's `ai` is tried with, over chat and over Responses.

import { APICallError, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import * as trying from "./trying.mjs";

const person = z.object({ name: z.string(), age: z.number().int() });
const get_weather = tool({
  description: "The weather in a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: ({ city }) => trying.weather(city),
});

// Returns what to try, always with the provider's options; asked for what is not offered, the model
// is told the field.
export function features(model, { provider = "openai", options = {}, more = {}, notOffered, field }) {
  const asked = { model, temperature: 0, maxRetries: 0, providerOptions: { [provider]: options }, ...more };

  async function chat() {
    const answer = await generateText({ ...asked, prompt: trying.SUM });
    trying.holds(answer.text, trying.SUM_RESULT);
    trying.check(answer.usage.outputTokens > 0, "no usage");
  }

  async function stream() {
    const answer = streamText({ ...asked, prompt: trying.SUM });
    const pieces = [];
    for await (const piece of answer.textStream) pieces.push(piece);
    trying.holds(pieces.join(""), trying.SUM_RESULT);
    trying.check(pieces.length > 1 && (await answer.usage).outputTokens > 0, "no stream with usage");
  }

  async function structured() {
    const answer = await generateObject({ ...asked, prompt: trying.PERSON, schema: person });
    trying.isPerson(answer.object);
  }

  async function tools() {
    const armed = { ...asked, tools: { get_weather }, stopWhen: stepCountIs(3), prompt: trying.WEATHER };
    const answer = await generateText(armed);
    trying.check(answer.steps.length === 2, `${answer.steps.length} steps`);
    trying.holds(answer.text, trying.DEGREES);
    trying.holds(await streamText(armed).text, trying.DEGREES);
  }

  async function history() {
    const first = await generateText({ ...asked, prompt: trying.SUM });
    const messages = [
      { role: "user", content: trying.SUM },
      ...first.response.messages,
      { role: "user", content: trying.OTHER_SUM },
    ];
    const second = await generateText({ ...asked, messages });
    trying.holds(second.text, trying.OTHER_RESULT);
  }

  async function refusal() {
    const providerOptions = { [provider]: { ...options, ...notOffered } };
    const wrong = generateText({ ...asked, prompt: trying.SUM, providerOptions });
    return trying.refused(await trying.caught(wrong), APICallError, field);
  }

  return [chat, stream, structured, tools, history, refusal];
}
