"""What `llm` is tried with: a model of its `extra-openai-models.yaml`, over chat or Responses."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llm
import openai
import trying

FOLDER = Path(tempfile.mkdtemp(prefix="llm-"))
os.environ["LLM_USER_PATH"] = str(FOLDER)


def made(**options: Any) -> Any:
    """Return the model, as a user's configuration makes it. JSON is YAML."""
    told = {
        "model_id": "here",
        "model_name": trying.MODEL,
        "api_base": trying.BASE_URL,
        "api_key_name": "here",
        "supports_schema": True,
        "supports_tools": True,
        **options,
    }
    (FOLDER / "extra-openai-models.yaml").write_text(json.dumps([told]))
    (FOLDER / "keys.json").write_text(json.dumps({"here": trying.API_KEY}))
    return llm.get_model("here")


def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return trying.weather({"city": city})


def features(model: Any) -> list[Callable[[], Any]]:
    """Return what to try with a model."""
    options = {"temperature": 0}

    def chat() -> None:
        answer = model.prompt(trying.SUM, stream=False, **options)
        trying.holds(answer.text(), trying.SUM_RESULT)
        assert answer.usage().output > 0

    def stream() -> None:
        answer = model.prompt(trying.SUM, **options)
        pieces = list(answer)
        trying.holds("".join(pieces), trying.SUM_RESULT)
        assert len(pieces) > 1
        assert answer.usage().output > 0

    def structured() -> None:
        answer = model.prompt(trying.PERSON, schema=trying.PERSON_SCHEMA, **options)
        trying.is_person_text(answer.text())

    def tools() -> None:
        for stream in (False, True):
            chain = model.chain(trying.WEATHER, tools=[get_weather], stream=stream, options=options)
            trying.holds(chain.text(), trying.DEGREES)

    def history() -> None:
        talk = model.conversation()
        trying.holds(talk.prompt(trying.SUM, **options).text(), trying.SUM_RESULT)
        trying.holds(talk.prompt(trying.OTHER_SUM, **options).text(), trying.OTHER_RESULT)

    def refusal() -> str:
        try:
            model.prompt(trying.SUM, temperature=2, max_tokens=10**6).text()
        except (openai.BadRequestError, llm.ModelError) as error:
            return trying.refused(error, "1000000")
        raise AssertionError("too many tokens are not refused")

    return [chat, stream, structured, tools, history, refusal]
