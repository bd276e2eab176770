// Vercel's `ai` with @ai-sdk/anthropic over Messages.

import { createAnthropic } from "@ai-sdk/anthropic";
import { features } from "./ai_sdk_models.mjs";
import * as trying from "./trying.mjs";

const anthropic = createAnthropic({ baseURL: trying.BASE_URL, apiKey: trying.API_KEY });
const thinking = { type: "enabled", budgetTokens: 2000 };
const [chat, stream, , tools, history, refusal] = features(anthropic(trying.MODEL), {
  provider: "anthropic",
  more: { maxOutputTokens: 200 }, // of its own it asks for 4,096, twice the demo model's context
  notOffered: { thinking },
  field: "thinking",
});
await trying.tryAll(chat, stream, tools, history, refusal);
