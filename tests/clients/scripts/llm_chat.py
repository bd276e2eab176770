"""`llm` over chat, which it begins with."""

import trying
from llm_prompts import features, made

trying.try_all(*features(made()))
