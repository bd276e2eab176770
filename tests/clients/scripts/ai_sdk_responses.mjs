// Vercel's `ai` with @ai-sdk/openai over Responses, which it begins with.

import { createOpenAI } from "@ai-sdk/openai";
import { embedMany } from "ai";
import { features } from "./ai_sdk_models.mjs";
import * as trying from "./trying.mjs";

const openai = createOpenAI({ baseURL: trying.BASE_URL, apiKey: trying.API_KEY });

async function embeddings() {
  const model = openai.textEmbeddingModel(trying.EMBEDDING_MODEL);
  const answer = await embedMany({ model, values: [trying.SUM, trying.PERSON] });
  trying.areVectors(answer.embeddings);
}

// Else it refers to earlier answers by their ids, and none is kept here.
const options = { store: false };
const notOffered = { previousResponseId: "resp_1" };
const field = "previous_response_id";
await trying.tryAll(...features(openai(trying.MODEL), { options, notOffered, field }), embeddings);
