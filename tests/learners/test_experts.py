"""Guards a chat endpoint as an expert: what it is sent, that a missing answer is an error, that environments can hold it."""

from __future__ import annotations

import pickle

import pytest

from learners.experts import EndpointExpert
from learners.preference.api import EndpointError, EndpointOptions
from learners.sampling import SamplingConfig

MESSAGES = [{"role": "system", "content": "You review."}, {"role": "user", "content": "def f(): pass"}]


def expert(server, **options):
    plain = {
        "comparator_api_url": server.url_for("/chat"),
        "comparator_api_format": "openai",
        "comparator_api_model": "m",
        "comparator_api_max_attempts": 2,
        "comparator_api_retry_wait": 0.0,
    }
    return EndpointExpert(EndpointOptions(**{**plain, **options}))


def test_it_answers_a_conversation(httpserver):
    httpserver.expect_request("/chat").respond_with_json({"choices": [{"message": {"content": "edit f"}}]})
    asked = pickle.loads(pickle.dumps(expert(httpserver)))
    assert asked(MESSAGES) == "edit f"
    ((request, _),) = httpserver.log
    assert request.json["messages"] == MESSAGES
    assert (request.json["model"], request.json["temperature"], request.json["max_tokens"]) == ("m", 0.3, 2048)


@pytest.mark.parametrize(("status", "requests"), [(503, 2), (401, 1)])
def test_no_answer_is_an_error(httpserver, status, requests):
    httpserver.expect_request("/chat").respond_with_data("no", status=status)
    with pytest.raises(EndpointError, match=str(status)):
        expert(httpserver)(MESSAGES)
    assert len(httpserver.log) == requests


def test_options_are_checked_when_it_is_made():
    with pytest.raises(ValueError, match="comparator_api_url must be given"):
        EndpointExpert(EndpointOptions())
    with pytest.raises(ValueError, match="comparator_api_format must be one of"):
        EndpointExpert(EndpointOptions(comparator_api_url="http://localhost/", comparator_api_format="smoke"))
    with pytest.raises(ValueError, match="temperature"):
        EndpointExpert(EndpointOptions(comparator_api_url="http://localhost/"), SamplingConfig(temperature=-1))
