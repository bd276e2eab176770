"""`llm` over Responses."""

import trying
from llm_prompts import features, made

trying.try_all(*features(made(responses=True)))
