// Vercel's `ai` with @ai-sdk/openai over chat.

import { createOpenAI } from "@ai-sdk/openai";
import { features } from "./ai_sdk_models.mjs";
import * as trying from "./trying.mjs";

const openai = createOpenAI({ baseURL: trying.BASE_URL, apiKey: trying.API_KEY });
await trying.tryAll(
  ...features(openai.chat(trying.MODEL), { notOffered: { store: true }, field: "store" }),
);
