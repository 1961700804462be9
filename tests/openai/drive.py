"""Drives a run through a pause with OpenAI's own client, and prints what it saw as one JSON object.

Usage: drive.py plain|stream, with OPENAI_BASE_URL and OPENAI_API_KEY in the environment, as for any program of theirs.
Everything that comes is held against the types that the client itself declares.
"""

import asyncio
import json
import sys

import openai
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

EVENT = TypeAdapter(ResponseStreamEvent)
client = OpenAI()


def checked(response):
    """A response whose every field is what the client declares it to be."""
    Response.model_validate(response.to_dict())
    return response


def plain(**wanted):
    return checked(client.responses.create(model="default", **wanted))


def streamed(**wanted):
    """The same through a stream; the events told one after the other must come to the response that ends it."""
    events = list(client.responses.create(model="default", stream=True, **wanted))
    for event in events:
        EVENT.validate_python(event.to_dict())
    assert [event.sequence_number for event in events] == list(range(len(events))), events
    last = events[-1].response
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.to_dict() for item in done] == [item.to_dict() for item in last.output]
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == last.output_text
    seen.setdefault("events", []).append([event.type for event in events])
    return checked(last)


def helped(**wanted):
    """The same through the client's helper for streams, which keeps its own account of the events."""
    with client.responses.stream(model="default", **wanted) as stream:
        return stream.get_final_response()


async def later(**wanted):
    """The same with the client that does not block."""
    return checked(await AsyncOpenAI().responses.create(model="default", **wanted))


def answers(response, approve, **more):
    return [
        {"type": "mcp_approval_response", "approval_request_id": item.id, "approve": approve, **more}
        for item in response.output
        if item.type == "mcp_approval_request"
    ]


def shown(response):
    return {
        "id": response.id,
        "status": response.status,
        "text": response.output_text,
        "items": [item.to_dict() for item in response.output],
        "metadata": response.metadata,
        "previous": response.previous_response_id,
        "tokens": response.usage.total_tokens,
    }


seen = {}
ask = {"plain": plain, "stream": streamed}[sys.argv[1]]

asked = ask(input="write it")
seen["asked"] = shown(asked)
approved = ask(previous_response_id=asked.id, input=answers(asked, True))
seen["approved"] = shown(approved)
seen["continued"] = shown(ask(previous_response_id=approved.id, input="and now?"))
seen["retrieved"] = shown(checked(client.responses.retrieve(asked.id)))

try:
    ask(previous_response_id=asked.id, input=answers(asked, True))
except openai.ConflictError as error:
    retries = error.request.headers["x-stainless-retry-count"]
    seen["again"] = {"code": error.code, "by": error.body["decision"]["by"], "retries": retries}

try:
    ask(input="write it", temperature=0)
except openai.UnprocessableEntityError as error:
    seen["unknown"] = {"code": error.code, "at": error.body["errors"][0]["pointer"]}

asked = helped(input=[{"role": "user", "content": "write it"}])
denied = asyncio.run(later(previous_response_id=asked.id, input=answers(asked, False, reason="not today")))
seen["denied"] = shown(denied)

print(json.dumps(seen))
