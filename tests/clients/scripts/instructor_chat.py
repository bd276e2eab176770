"""instructor, which asks for one thing: an answer of a type."""

from typing import Any

import instructor
import openai
import trying
from instructor.core import InstructorError
from pydantic import BaseModel

plain = openai.OpenAI(base_url=trying.BASE_URL, api_key=trying.API_KEY)
ASKED: dict[str, Any] = {"model": trying.MODEL, "temperature": 0}


class Person(BaseModel):
    name: str
    age: int


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def structured() -> None:
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.JSON):
        client = instructor.from_openai(plain, mode=mode)
        person = client.create(messages=[user(trying.PERSON)], response_model=Person, **ASKED)
        trying.is_person(person.model_dump())


def stream() -> None:
    client = instructor.from_openai(plain)
    partials = list(
        client.create_partial(messages=[user(trying.PERSON)], response_model=Person, **ASKED)
    )
    assert len(partials) > 1
    trying.is_person(partials[-1].model_dump())


def history() -> None:
    client = instructor.from_openai(plain)
    turns = [user(trying.PERSON)]
    person, answer = client.create_with_completion(messages=turns, response_model=Person, **ASKED)
    message = answer.choices[0].message
    calls = [each.id for each in message.tool_calls]
    results = [{"role": "tool", "tool_call_id": id_, "content": "ok"} for id_ in calls]
    turns += [message.model_dump(), *results, user(trying.PERSON)]
    again = client.create(messages=turns, response_model=Person, **ASKED)
    assert again.model_dump() == person.model_dump()


def refusal() -> str:
    client = instructor.from_openai(plain)
    asked = {**ASKED, "store": True, "max_retries": 1}
    try:
        client.create(messages=[user(trying.PERSON)], response_model=Person, **asked)
    except InstructorError as error:
        return trying.refused(error, "store")
    raise AssertionError("store is not refused")


trying.try_all(stream, structured, history, refusal)
