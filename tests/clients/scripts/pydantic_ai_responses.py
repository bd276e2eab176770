"""pydantic-ai with `openai:`, which is Responses."""

import openai
import trying
from pydantic_ai import Embedder
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai_agents import features

provider = OpenAIProvider(base_url=trying.BASE_URL, api_key=trying.API_KEY)
model = OpenAIResponsesModel(trying.MODEL, provider=provider)


async def embeddings() -> None:
    # The provider above keeps connections of loops that have ended.
    async with openai.AsyncOpenAI(base_url=trying.BASE_URL, api_key=trying.API_KEY) as client:
        fresh = OpenAIProvider(openai_client=client)
        known = OpenAIEmbeddingModel(str(trying.EMBEDDING_MODEL), provider=fresh)
        result = await Embedder(known).embed_documents([trying.SUM, trying.PERSON])
    trying.are_vectors(result.embeddings)


trying.try_all(
    *features(model, not_offered={"openai_store": True}, field="store"),
    embeddings,
)
