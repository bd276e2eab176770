"""langchain-openai over chat, which it begins with."""

import trying
from langchain_models import features, made
from langchain_openai import OpenAIEmbeddings


def embeddings() -> None:
    # Else LangChain sends the token ids of another tokenizer.
    model = OpenAIEmbeddings(
        model=str(trying.EMBEDDING_MODEL),
        base_url=trying.BASE_URL,
        api_key=trying.API_KEY,
        check_embedding_ctx_length=False,
    )
    trying.are_vectors(model.embed_documents([trying.SUM, trying.PERSON]))


trying.try_all(*features(made(), not_offered={"store": True}, field="store"), embeddings)
