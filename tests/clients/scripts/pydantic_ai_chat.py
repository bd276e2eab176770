"""pydantic-ai with `openai-chat:`, its name for chat."""

import trying
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai_agents import features

provider = OpenAIProvider(base_url=trying.BASE_URL, api_key=trying.API_KEY)
model = OpenAIChatModel(trying.MODEL, provider=provider)

trying.try_all(*features(model, not_offered={"openai_store": True}, field="store"))
