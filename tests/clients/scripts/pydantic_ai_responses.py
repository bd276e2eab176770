"""pydantic-ai with `openai:`, which is Responses."""

import trying
from pydantic_ai import Embedder
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai_agents import features

provider = OpenAIProvider(base_url=trying.BASE_URL, api_key=trying.API_KEY)
model = OpenAIResponsesModel(trying.MODEL, provider=provider)


def embeddings() -> None:
    known = OpenAIEmbeddingModel(str(trying.EMBEDDING_MODEL), provider=provider)
    result = Embedder(known).embed_documents_sync([trying.SUM, trying.PERSON])
    trying.are_vectors(result.embeddings)


trying.try_all(
    *features(model, not_offered={"openai_store": True}, field="store"),
    embeddings,
)
