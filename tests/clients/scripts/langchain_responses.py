"""langchain-openai over Responses."""

import trying
from langchain_models import features, made

NOT_OFFERED = {"previous_response_id": "resp_1"}
model = made(use_responses_api=True)

trying.try_all(*features(model, not_offered=NOT_OFFERED, field="previous_response_id"))
