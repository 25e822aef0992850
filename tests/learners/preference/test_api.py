"""Guards what a comparator's endpoint is sent, what is read from its answers, what is tried again, and that no key is shown."""

from __future__ import annotations

import builtins
import json
import logging
import socket
import ssl
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx
import numpy as np
import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from learners.compatibility import check_compatible, redact
from learners.preference.api import EndpointError, EndpointOptions, EndpointPolicy
from learners.preference.endpoint_errors import UnreadableAnswerError
from learners.preference.endpoint_formats import canonical_format, json_safe, read_texts
from learners.preference.endpoint_http import retry_after_seconds
from learners.sampling import SamplingConfig
from llm_envs.types import ChatPrompt

SECRET = "sk-very/secret+0123"
VARIABLE = "TEST_COMPARATOR_KEY"
SAMPLING = SamplingConfig(temperature=0.7, top_p=0.9, top_k=5, max_new_tokens=32)


def openai_answer(*texts: str | None) -> dict:
    return {"choices": [{"index": i, "message": {"role": "assistant", "content": text}} for i, text in enumerate(texts)]}


def anthropic_answer(*texts: str) -> dict:
    return {"type": "message", "content": [{"type": "text", "text": text} for text in texts]}


def responses_answer(*texts: str) -> dict:
    return {"output": [{"type": "reasoning"}, {"content": [{"type": "output_text", "text": text} for text in texts]}]}


@dataclass
class Scripted:
    """A server that gives its answers in order, the last one again and again, and keeps what it was asked.

    An answer is a body, a status, a `Response`, or a function of the request that gives one.
    """

    server: HTTPServer
    answers: tuple

    def __post_init__(self) -> None:
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.parameters: list[dict[str, str]] = []
        self.times: list[float] = []
        self._lock = threading.Lock()
        self.server.expect_request("/v1").respond_with_handler(self._answer)

    def _answer(self, request: Request) -> Response:
        with self._lock:
            self.times.append(time.monotonic())
            self.bodies.append(json.loads(request.get_data()))
            self.headers.append(dict(request.headers))
            self.parameters.append(request.args.to_dict())
            answer = self.answers[min(len(self.bodies), len(self.answers)) - 1]
        if callable(answer) and not isinstance(answer, Response):
            answer = answer(request)
        if isinstance(answer, int):
            return Response(json.dumps({"error": {"message": f"status {answer}"}}), status=answer)
        return answer if isinstance(answer, Response) else Response(json.dumps(answer), content_type="application/json")

    @property
    def calls(self) -> int:
        return len(self.bodies)


@pytest.fixture(scope="module")
def server() -> Iterator[HTTPServer]:
    with HTTPServer(threaded=True) as running:
        yield running


@pytest.fixture
def scripted(server: HTTPServer) -> Iterator[Callable[..., Scripted]]:
    """`scripted(answer, answer, …)`: see `Scripted`."""
    server.clear()
    yield lambda *answers: Scripted(server, answers)
    server.check()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv(VARIABLE, SECRET)
    # Every client would read the certificates of all authorities, for a server without encryption.
    monkeypatch.setenv("SSL_CERT_DIR", str(Path(__file__).parent))


@pytest.fixture
def policy(server: HTTPServer) -> Callable[..., EndpointPolicy]:
    """`policy(format="openai", sampling=SAMPLING, **options without their comparator_api_)`: hardly waits between attempts."""

    def build(form: str = "openai", sampling: SamplingConfig = SAMPLING, **options: object) -> EndpointPolicy:
        given = {"url": server.url_for("/v1"), "format": form, "timeout": 5.0, "retry_wait": 0.01} | options
        return EndpointPolicy(EndpointOptions(**{f"comparator_api_{name}": value for name, value in given.items()}), sampling)

    return build


def ask(policy: EndpointPolicy, n: int = 1, prompt: str = "Say hi.") -> list[str | None]:
    return policy.complete([prompt], n, [0], [None])[0]


# ---- requests ----


def test_generic_request_has_the_fields_of_the_format(scripted, policy):
    server = scripted({"completions": ["a", "b"]})
    item = {"id": np.int64(3), "tags": ("x", {"y"}), "score": np.float32(0.5), "nan": float("nan"), 7: None}
    got = policy("generic", model="m").complete(["Say hi."], 2, [1], [item])
    assert got == [["a", "b"]]
    assert server.bodies == [
        {
            "prompt": "Say hi.",
            "agent_idx": 1,
            "num_return_sequences": 2,
            "max_new_tokens": 32,
            "temperature": 0.7,
            "top_p": 0.9,
            "top_k": 5,
            "batch_item": {"id": 3, "tags": ["x", ["y"]], "score": 0.5, "nan": None, "7": None},
            "model": "m",
        }
    ]
    assert server.headers[0]["Content-Type"] == "application/json"
    assert "Authorization" not in server.headers[0]


def test_generic_request_without_model_item_and_top_k(scripted, policy):
    server = scripted({"completions": ["a"]})
    ask(policy("generic", SamplingConfig(top_k=None)))
    assert server.bodies[0]["top_k"] is None and server.bodies[0]["batch_item"] is None and "model" not in server.bodies[0]


def test_openai_request(scripted, policy):
    server = scripted(openai_answer("a", "b", "c"))
    assert ask(policy("chat", model="gpt", key_env=VARIABLE), 3) == ["a", "b", "c"]
    assert server.bodies == [
        {
            "model": "gpt",
            "messages": [{"role": "user", "content": "Say hi."}],
            "n": 3,
            "max_tokens": 32,
            "temperature": 0.7,
            "top_p": 0.9,
        }
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {SECRET}"
    assert server.headers[0]["Content-Type"] == "application/json"


def test_openai_asks_until_it_has_enough_and_keeps_to_the_limit(scripted, policy):
    server = scripted(*(openai_answer(*texts) for texts in (["a", "b"], ["c"], ["d", "e", "more"])))
    assert ask(policy(max_n_per_request=2), 5) == ["a", "b", "c", "d", "e"]
    assert [body["n"] for body in server.bodies] == [2, 2, 2]


def test_a_choice_without_text_is_asked_for_again(scripted, policy):
    server = scripted(openai_answer("a", None, ""), openai_answer("b"))
    assert ask(policy(), 3) == ["a", "", "b"]
    assert [body["n"] for body in server.bodies] == [3, 1]


@pytest.mark.parametrize("options", [{"model": "DeepSeek-V3"}, {"url": "/v1?host=api.deepseek.com"}])
def test_deepseek_is_asked_for_one_at_a_time(scripted, policy, server, options):
    script = scripted(openai_answer("a"), openai_answer("b"))
    options = {name: server.url_for(value) if name == "url" else value for name, value in options.items()}
    assert ask(policy(**options), 2) == ["a", "b"]
    assert [body["n"] for body in script.bodies] == [1, 1]


def test_anthropic_request_one_per_candidate(scripted, policy):
    server = scripted(anthropic_answer("a"), anthropic_answer("b", "c"))
    assert ask(policy("messages", model="claude", key_env=VARIABLE), 2) == ["a", "bc"]
    assert server.bodies == 2 * [
        {
            "model": "claude",
            "max_tokens": 32,
            "messages": [{"role": "user", "content": "Say hi."}],
            "temperature": 0.7,
            "top_p": 0.9,
        }
    ]
    headers = {name.lower(): value for name, value in server.headers[0].items()}
    assert headers["x-api-key"] == SECRET and headers["anthropic-version"] == "2023-06-01" and "authorization" not in headers


@pytest.mark.parametrize(
    ("temperature", "top_p", "sent"),
    [
        (0.7, 1.0, {"temperature": 0.7}),
        (1.0, 0.9, {"top_p": 0.9}),
        (1.0, 1.0, {"temperature": 1.0}),
        (0.0, 1.0, {"temperature": 0.0}),
    ],
)
def test_anthropic_gets_one_of_temperature_and_top_p_where_the_other_changes_nothing(scripted, policy, temperature, top_p, sent):
    server = scripted(anthropic_answer("a"))
    ask(policy("anthropic", SamplingConfig(temperature, top_p)))
    assert {key: value for key, value in server.bodies[0].items() if key in ("temperature", "top_p")} == sent


def test_anthropic_key_header_and_version_can_be_chosen(scripted, policy):
    server = scripted(anthropic_answer("a"))
    ask(policy("anthropic", key_env=VARIABLE, key_header="X-Proxy", headers={"Anthropic-Version": "2030-01-01"}))
    headers = {name.lower(): value for name, value in server.headers[0].items()}
    assert headers["x-proxy"] == f"Bearer {SECRET}" and headers["anthropic-version"] == "2030-01-01"


def test_responses_request_one_per_candidate(scripted, policy):
    server = scripted(responses_answer("a", "b"), responses_answer("c"))
    assert ask(policy("codex", model="o"), 2) == ["ab", "c"]
    assert server.bodies == 2 * [
        {"model": "o", "input": "Say hi.", "max_output_tokens": 32, "temperature": 0.7, "top_p": 0.9},
    ]


def test_messages_of_a_chat_prompt_are_sent_as_such(scripted, policy):
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi", "name": "Ann"}
    prompt = ChatPrompt([system, user])
    server = scripted(
        openai_answer("a"), anthropic_answer("a"), responses_answer("a"), {"completions": ["a"]}, anthropic_answer("a")
    )
    for form in ("openai", "anthropic", "openai_responses", "generic"):
        ask(policy(form), prompt=prompt)
    ask(policy("anthropic"), prompt=ChatPrompt([system]))
    openai, anthropic, responses, generic, alone = server.bodies
    assert openai["messages"] == [system, user]
    assert anthropic["system"] == "Be brief." and anthropic["messages"] == [{"role": "user", "content": "Hi"}]
    assert responses["input"] == [system, user]
    assert generic["prompt"] == str(prompt)
    assert "system" not in alone and alone["messages"] == [{"role": "user", "content": "Be brief."}]


def test_extra_body_is_merged_last_and_none_removes_except_from_generic(scripted, policy):
    extra = {"temperature": 0.1, "top_p": None, "seed": 4}
    server = scripted(openai_answer("a"), {"completions": ["a"]})
    ask(policy("openai", extra_body=extra))
    ask(policy("generic", extra_body=extra))
    assert server.bodies[0]["temperature"] == server.bodies[1]["temperature"] == 0.1
    assert server.bodies[0]["seed"] == 4 and "top_p" not in server.bodies[0] and server.bodies[1]["top_p"] is None


def test_a_text_that_utf8_cannot_hold_is_sent(scripted, policy):
    server = scripted(openai_answer("a"))
    ask(policy(), prompt="half \ud83d é")
    assert server.bodies[0]["messages"][0]["content"] == "half \ud83d é"


def test_environment_is_put_into_headers_and_address_when_sent(scripted, policy, server, monkeypatch):
    script = scripted(openai_answer("a"))
    one = policy(
        url=server.url_for(f"/v1?v=2&key=${{{VARIABLE}}}"), headers={"X-Team": "blue", "X-Auth-Token": f"T ${{{VARIABLE}}}"}
    )
    ask(one)
    monkeypatch.setenv(VARIABLE, "rotated")
    ask(one)
    assert [headers["X-Auth-Token"] for headers in script.headers] == [f"T {SECRET}", "T rotated"]
    assert script.headers[0]["X-Team"] == "blue"
    assert script.parameters == [{"v": "2", "key": SECRET}, {"v": "2", "key": "rotated"}]


@pytest.mark.parametrize(("prefix", "sent"), [("Token", f"Token {SECRET}"), ("", SECRET), (None, SECRET)])
def test_key_header_and_prefix(scripted, policy, prefix, sent):
    server = scripted(openai_answer("a"))
    ask(policy(key_env=VARIABLE, key_header="X-Key", key_prefix=prefix))
    assert server.headers[0]["X-Key"] == sent and "Authorization" not in server.headers[0]


# ---- answers ----


@pytest.mark.parametrize(
    "answer",
    [
        {"completions": ["a", "b"]},
        {"responses": ["a", "b"]},
        {"outputs": [{"text": "a"}, {"content": "b"}]},
        {"choices": [{"completion": "a"}, {"response": "b"}]},
        {"choices": [{"message": {"content": "a"}}, {"message": {"content": [{"type": "text", "text": "b"}]}}]},
        {"completions": None, "outputs": ["a", None, {"text": "b"}]},
        ["a", "b"],
    ],
)
def test_generic_finds_completions_under_the_usual_names(answer):
    assert read_texts("generic", answer, "completions") == ["a", "b"]


def test_generic_follows_the_response_field_first():
    answer = {"result": [{"texts": "a"}], "completions": ["no"]}
    assert read_texts("generic", answer, "result.0.texts") == ["a"]
    assert read_texts("generic", answer, "result.3.texts") == ["no"]


@pytest.mark.parametrize(
    ("form", "answer", "text"),
    [
        ("openai", {"choices": [{"text": "old"}]}, "old"),
        ("openai", {"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}}]}, "ab"),
        ("anthropic", {"content": [{"type": "thinking", "thinking": "…"}, {"type": "text", "text": "a"}]}, "a"),
        ("openai_responses", {"output": [{"content": [{"type": "text", "text": "a"}]}, {"content": [{"type": "refusal"}]}]}, "a"),
    ],
)
def test_other_shapes_of_answers(form, answer, text):
    assert read_texts(form, answer, "completions") == [text]


def test_half_a_character_is_replaced():
    """An answer cut within one that JSON writes as two escapes; no tokenizer reads the half."""
    cut = json.loads(r'{"completions": ["ok \ud83d", "\ud83d\ude00"]}')
    assert read_texts("generic", cut, "completions") == ["ok \ufffd", "\U0001f600"]


@pytest.mark.parametrize("form", ["generic", "openai", "anthropic", "openai_responses"])
@pytest.mark.parametrize(
    "answer",
    [None, 3, [], {}, {"choices": []}, {"choices": [None]}, {"choices": [{"message": None}]}, {"content": []}, {"output": [{}]},
     {"content": [{"type": "text"}]}, {"error": "x"}],
)  # fmt: skip
def test_an_answer_without_text_is_none(form, answer):
    with pytest.raises(UnreadableAnswerError):
        read_texts(form, answer, "completions")


def test_json_safe_gives_the_same_whatever_the_order_of_a_set():
    assert json_safe({"b", "a"}) == ["a", "b"]
    assert json_safe([np.array([1, 2]), datetime(2030, 1, 2), float("inf"), True]) == [[1, 2], "2030-01-02 00:00:00", None, True]


def test_generic_is_asked_once_and_what_is_missing_is_none(scripted, policy):
    server = scripted({"completions": ["a"]})
    one = policy("generic")
    with pytest.warns(UserWarning, match=r"no answer for 2 of 3 completions \(missing 2; 1 of 3 completions came\)"):
        assert ask(one, 3) == ["a", None, None]
    assert server.calls == 1 and one.num_failed == {"missing": 2}


def test_generic_keeps_to_a_limit_and_to_the_number_asked_for(scripted, policy):
    server = scripted({"completions": ["a", "b", "c"]})
    assert ask(policy("generic", max_n_per_request=2), 3) == ["a", "b", "a"]
    assert [body["num_return_sequences"] for body in server.bodies] == [2, 1]


# ---- failures: BC-39 ----


def truncated(request: Request) -> Response:
    return Response('{"choices": [{"message": {"con', content_type="application/json")


def cut_off(request: Request) -> Response:
    return Response(json.dumps(openai_answer("never"))[:-5], headers={"Content-Length": "999"})


def dropped(request: Request) -> Response:
    request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return Response("")


def page(request: Request) -> Response:
    return Response("<html>maintenance</html>")


def not_utf8(request: Request) -> Response:
    return Response(b'{"choices": "\xff\xfe"}')


def test_a_too_many_requests_waits_as_long_as_the_server_asks(scripted, policy):
    server = scripted(Response("", 429, {"Retry-After": "1"}), openai_answer("good"))
    assert ask(policy()) == ["good"]
    assert server.calls == 2 and server.times[1] - server.times[0] >= 1


def test_b_a_server_that_fails_three_times_gives_none_and_is_counted(scripted, policy):
    server = scripted(500)
    one = policy()
    with pytest.warns(UserWarning, match=r"no answer for 4 of 4 completions \(http_500 4; HTTP 500: status 500\)"):
        assert ask(one, 4) == [None] * 4
    assert server.calls == 3 and one.num_failed == {"http_500": 4}


def test_c_a_refused_key_stops_at_once(scripted, policy):
    server = scripted(401)
    with pytest.raises(EndpointError, match=rf"/v1 refused the request with HTTP 401 \(the key was not accepted\).*{VARIABLE}"):
        ask(policy(key_env=VARIABLE))
    assert server.calls == 1


@pytest.mark.parametrize("form", ["generic", "openai", "anthropic", "openai_responses"])
@pytest.mark.parametrize(
    "bad",
    [{"choices": []}, openai_answer(None), truncated, cut_off, dropped, page, not_utf8, {"error": {"message": "busy"}}],
    ids=["empty choices", "null content", "cut JSON", "cut body", "dropped", "HTML", "not UTF-8", "error with status 200"],
)
def test_d_e_f_a_bad_answer_is_tried_again(scripted, policy, form, bad):
    good = {"completions": ["x"], **openai_answer("x"), **anthropic_answer("x"), **responses_answer("x")}
    server = scripted(bad, good)
    assert ask(policy(form)) == ["x"]
    assert server.calls == 2


@pytest.mark.parametrize(
    ("bad", "reason"), [({"choices": []}, "unreadable"), (truncated, "unreadable"), (dropped, "connection"), (503, "http_503")]
)
def test_what_stays_bad_is_given_up_after_three_attempts(scripted, policy, bad, reason):
    server = scripted(bad)
    one = policy()
    with pytest.warns(UserWarning, match=reason):
        assert ask(one) == [None]
    assert server.calls == 3 and one.num_failed == {reason: 1}


def test_g_a_server_that_never_answers_is_left_in_time(scripted, policy):
    over = threading.Event()
    server = scripted(lambda request: (over.wait(3), Response(""))[1])
    one = policy(timeout=0.1)
    began = time.monotonic()
    with pytest.warns(UserWarning, match=r"timeout 1; no answer within 0.1 s"):
        assert ask(one) == [None]
    assert time.monotonic() - began < 2 and server.calls == 3
    over.set()


def test_a_server_that_sends_little_by_little_is_left_in_time(scripted, policy):
    def drip():
        for _ in range(100):
            time.sleep(0.02)
            yield b" "

    server = scripted(lambda request: Response(drip()))
    began = time.monotonic()
    with pytest.warns(UserWarning, match="timeout 1"):
        assert ask(policy(timeout=0.1, max_attempts=2)) == [None]
    assert time.monotonic() - began < 1.5 and server.calls == 2


def test_h_a_refused_connection_is_given_up_after_the_attempts(policy):
    with socket.socket() as closed:  # bound, but it does not listen
        closed.bind(("127.0.0.1", 0))
        one = policy(url=f"http://127.0.0.1:{closed.getsockname()[1]}/v1", retry_wait=0.1)
        began = time.monotonic()
        with pytest.warns(UserWarning, match="connection 2; ConnectError"):
            assert ask(one, 2) == [None, None]
    assert 0.3 <= time.monotonic() - began < 2  # 0.1 s and 0.2 s between three attempts


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_statuses_that_pass_are_tried_again(scripted, policy, status):
    server = scripted(status, openai_answer("good"))
    assert ask(policy()) == ["good"]
    assert server.calls == 2


@pytest.mark.parametrize("status", [302, 400, 401, 402, 403, 404, 405, 422])
def test_statuses_that_do_not_pass_stop_at_once(scripted, policy, status):
    server = scripted(status)
    with pytest.raises(EndpointError, match=f"HTTP {status}"):
        ask(policy(), 2)
    assert server.calls == 1


def test_a_refusal_says_why_and_how_to_help(scripted, policy):
    scripted(Response(json.dumps({"error": {"message": "only one of\ntemperature and top_p"}}), 400))
    with pytest.raises(
        EndpointError, match=r"removed with None, in comparator_api_extra_body\): only one of temperature and top_p$"
    ):
        ask(policy())


def test_an_account_without_credit_is_not_asked_again(scripted, policy):
    server = scripted(Response(json.dumps({"error": {"message": "no credit", "code": "insufficient_quota"}}), 429))
    with pytest.raises(EndpointError, match=r"HTTP 429.*no credit"):
        ask(policy())
    assert server.calls == 1


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "unknown host"),
        (ssl.SSLCertVerificationError(1, "self-signed certificate"), "not trusted"),
    ],
)
def test_an_unknown_host_and_an_untrusted_certificate_stop_at_once(policy, monkeypatch, cause, said):
    calls = []

    def fail(*args, **kwargs):
        calls.append(args)
        raise cause

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(EndpointError, match=f"http://nowhere.invalid/v1 .*{said}"):
        ask(policy(url="http://nowhere.invalid/v1?key=${TEST_COMPARATOR_KEY}"))
    assert len(calls) == 1


def test_a_name_server_that_is_away_is_tried_again(policy, monkeypatch):
    def fail(*args, **kwargs):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.warns(UserWarning, match="connection 1"):
        assert ask(policy(url="http://nowhere.invalid/v1")) == [None]


def test_waits_double_up_to_the_limit(scripted, policy):
    server = scripted(500, 500, 500, 500, openai_answer("good"))
    assert ask(policy(retry_wait=0.1, max_retry_wait=0.25, max_attempts=5)) == ["good"]
    waits = np.diff(server.times)
    assert all(wait >= least for wait, least in zip(waits, [0.1, 0.2, 0.25, 0.25], strict=True)), waits
    assert waits[3] < 0.7  # 0.8 without a limit


def test_the_limit_holds_for_what_a_server_asks_too(scripted, policy):
    server = scripted(Response("", 503, {"Retry-After": "3600"}), openai_answer("good"))
    assert ask(policy(max_retry_wait=0.05)) == ["good"]
    assert 0.05 <= server.times[1] - server.times[0] < 1


def test_retry_after_as_seconds_and_as_date():
    now = datetime(2030, 5, 1, 12, 0, 0, tzinfo=timezone.utc)
    assert retry_after_seconds("7", now) == 7
    assert retry_after_seconds("0.5", now) == 0.5
    assert retry_after_seconds("Wed, 01 May 2030 12:00:30 GMT", now) == 30
    assert retry_after_seconds("Wed, 01 May 2030 14:00:30 +0200", now) == 30
    assert retry_after_seconds("Wed, 01 May 2030 12:00:30 -0000", now) == 30
    for nothing in (None, "", "soon", "-3", "nan", "inf", "Wed, 01 May 2030 11:00:00 GMT"):
        assert retry_after_seconds(nothing, now) == 0
    soon = (datetime.now(timezone.utc) + timedelta(seconds=60)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert 50 < retry_after_seconds(soon) <= 60


def test_an_unreadable_candidate_does_not_cost_the_next_one(scripted, policy):
    server = scripted({}, {}, anthropic_answer("b"))
    one = policy("anthropic", max_attempts=2)
    with pytest.warns(UserWarning, match="unreadable 1"):
        assert ask(one, 2) == [None, "b"]
    assert server.calls == 3


def test_a_server_that_is_away_is_not_asked_for_the_prompts_other_candidates(scripted, policy):
    server = scripted(anthropic_answer("a"), 503)
    one = policy("anthropic")
    with pytest.warns(UserWarning, match="http_503 3"):
        assert ask(one, 4) == ["a", None, None, None]
    assert server.calls == 4 and one.num_failed == {"http_503": 3}


def test_one_prompt_without_answer_leaves_the_others(scripted, policy):
    def answer(request: Request) -> Response:
        text = json.loads(request.get_data())["prompt"]
        return Response("", 500) if text == "bad" else Response(json.dumps({"completions": [text.upper()]}))

    scripted(answer)
    one = policy("generic")
    with pytest.warns(UserWarning, match="1 of 3"):
        assert one.complete(["a", "bad", "c"], 1, [0, 1, 0], [None] * 3) == [["A"], [None], ["C"]]


def test_missing_answers_are_warned_of_once_and_all_counted(scripted, policy):
    scripted(500)
    one = policy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask(one, 2)
        ask(one, 3)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert one.num_failed == {"http_500": 5}


# ---- several at once ----


def test_answers_are_in_order_whatever_their_timing(scripted, policy):
    def answer(request: Request) -> Response:
        body = json.loads(request.get_data())
        time.sleep(0.01 * (8 - int(body["prompt"])))
        return Response(json.dumps({"completions": [f"{body['prompt']} for agent {body['agent_idx']}, {body['batch_item']}"]}))

    scripted(answer)
    numbers = range(8)
    got = policy("generic").complete([str(i) for i in numbers], 1, [i % 2 for i in numbers], [{"i": i} for i in numbers])
    assert got == [[f"{i} for agent {i % 2}, {{'i': {i}}}"] for i in numbers]


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (3, 3), (8, 6)])
def test_as_many_requests_run_at_once_as_allowed(scripted, policy, concurrency, most):
    lock, running, peak = threading.Lock(), 0, 0
    full = threading.Event()

    def answer(request: Request) -> Response:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
            if running == most:
                full.set()
        assert full.wait(5)  # they do not come one after another
        time.sleep(0.02)
        with lock:
            running -= 1
        return Response(json.dumps({"completions": ["x"]}))

    scripted(answer)
    policy("generic", concurrency=concurrency).complete(["p"] * 6, 1, [0] * 6, [None] * 6)
    assert peak == most


def test_a_refusal_ends_the_waits_of_the_others(scripted, policy):
    def answer(request: Request) -> Response:
        status = 403 if json.loads(request.get_data())["prompt"] == "refused" else 503
        if status == 403:
            time.sleep(0.1)
        return Response("", status)

    server = scripted(answer)
    began = time.monotonic()
    with pytest.raises(EndpointError, match="HTTP 403"):
        policy("generic", retry_wait=30).complete(["a", "refused", "b", "c"], 1, [0] * 4, [None] * 4)
    assert time.monotonic() - began < 5
    assert server.calls <= 7  # each of the three that waited may send once more


def test_no_prompts_no_requests(policy):
    assert policy(url="http://nowhere.invalid").complete([], 1, [], []) == []


@pytest.mark.parametrize(("arguments", "said"), [((["p"], 1, [], [None]), "1, 0 and 1"), ((["p"], 0, [0], [None]), "got 0")])
def test_arguments_are_checked(policy, arguments, said):
    with pytest.raises(ValueError, match=said):
        policy().complete(*arguments)


# ---- secrets ----


def everything_said(error: BaseException) -> str:
    """The error with its traceback, and every error behind it, shown or not."""
    parts, seen, left = [], set(), [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        parts += [str(one), repr(one), repr(vars(one)), *traceback.format_exception(one)]
        request = one._request if isinstance(one, httpx.RequestError) else None
        parts += [repr(request), str(request.url if request else ""), repr(request.headers.raw if request else "")]
        left += [one.__cause__, one.__context__]
    return "\n".join(parts)


def shows_secret(text: str) -> bool:
    return any(form in text for form in (SECRET, SECRET.replace("/", "%2F"), "sk-very", "sk-v", "secret+"))


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """All that our side logged, at any level; the server logs what it was asked."""
    records = [record for record in caplog.records if record.name != "werkzeug"]
    assert {"httpx", "httpcore.http11"} & {record.name for record in records}
    return "\n".join(record.getMessage() + repr(record.args) for record in records)


def echo(status: int) -> Callable[[Request], Response]:
    """A server that says back all it got, also with escapes."""

    def answer(request: Request) -> Response:
        said = f"{request.url} {dict(request.headers)} {SECRET}"
        return Response(json.dumps({"detail": said}).replace("/", "\\/"), status)

    return answer


SECRETIVE = {
    "key_env": VARIABLE,
    "headers": {"X-Other-Token": f"${{{VARIABLE}}}"},
    "retry_wait": 0.0,
}


@pytest.mark.parametrize("status", [302, 400, 401, 402, 403, 404, 422])
def test_no_key_in_a_refusal(scripted, policy, server, status, caplog):
    caplog.set_level(logging.DEBUG)
    scripted(echo(status))
    with pytest.raises(EndpointError) as caught:
        ask(policy(url=server.url_for(f"/v1?key=${{{VARIABLE}}}"), **SECRETIVE))
    assert not shows_secret(everything_said(caught.value))
    assert not shows_secret(logged(caplog))


def slow(request: Request) -> Response:
    time.sleep(0.3)
    return Response("")


@pytest.mark.parametrize(("bad", "timeout"), [(echo(500), 5.0), (echo(200), 5.0), (dropped, 5.0), (truncated, 5.0), (slow, 0.1)])
def test_no_key_in_the_warning_and_the_logs(scripted, policy, server, bad, timeout, caplog):
    caplog.set_level(logging.DEBUG)
    scripted(bad)
    more = {"url": server.url_for(f"/v1?key=${{{VARIABLE}}}"), "timeout": timeout, "max_attempts": 2, "response_field": "texts"}
    one = policy("generic", **SECRETIVE, **more)
    with pytest.warns(UserWarning) as caught:
        ask(one)
    assert not any(shows_secret(str(warning.message)) for warning in caught)
    assert not shows_secret(logged(caplog))
    assert not shows_secret(repr(one) + repr(one.options) + repr(vars(one)) + json.dumps(redact(asdict(one.options))))


@pytest.mark.parametrize("bad", ["sk-very\nsecret", "sk-very-sécret", ""])
def test_a_key_that_cannot_be_sent_is_not_shown(policy, monkeypatch, bad):
    monkeypatch.setenv(VARIABLE, bad)
    with pytest.raises(ValueError, match=f"environment variable {VARIABLE}") as caught:
        policy(key_env=VARIABLE)
    assert not shows_secret(everything_said(caught.value))


def test_white_space_around_a_key_is_not_part_of_it(scripted, policy, monkeypatch):
    monkeypatch.setenv(VARIABLE, f" {SECRET}\n")
    server = scripted(openai_answer("a"))
    ask(policy(key_env=VARIABLE))
    assert server.headers[0]["Authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": SECRET}, "comparator_api_key must not be given.*comparator_api_key_env"),
        ({"key": ""}, "comparator_api_key must not be given"),
        ({"key_env": SECRET}, "comparator_api_key_env must name an environment variable"),
        ({"key_env": "skvery0123"}, "needs the environment variable that is named for a key"),
        ({"headers": {"Authorization": f"Bearer {SECRET}"}}, "'Authorization' in clear text"),
        ({"headers": {"x-goog-api-key": SECRET}}, "'x-goog-api-key' in clear text"),
        ({"headers": {"X-Team": f"{SECRET}\n"}}, "'X-Team' must be a text of printable ASCII"),
        ({"url": f"https://host/v1?api-version=3&key={SECRET}"}, "'key' in clear text"),
        ({"url": f"https://me:{SECRET}@host/v1"}, "no user or password|must be"),
        ({"url": "https://me:skvery@host/v1"}, "no user or password"),
        ({"url": "https://host:skvery/v1"}, "must be the http:// or https:// address"),
        ({"url": f"host/v1?key={SECRET}"}, "must be the http:// or https:// address"),
        ({"url": SECRET}, "must be the http:// or https:// address"),
        ({"url": "https://[skvery"}, "must be the http:// or https:// address"),
        ({"extra_body": {"auth": {"api_key": SECRET}}}, "must hold no key"),
    ],
)
def test_a_secret_in_clear_text_is_refused_and_not_repeated(policy, options, said):
    with pytest.raises(ValueError, match=said) as caught:
        policy(**options)
    assert not shows_secret(everything_said(caught.value)) and "skvery" not in str(caught.value)


def test_a_missing_variable_is_named(policy):
    for options in ({"key_env": "NO_SUCH_KEY"}, {"headers": {"X-A": "${NO_SUCH_KEY}"}}, {"url": "http://host/${NO_SUCH_KEY}"}):
        with pytest.raises(ValueError, match="environment variable NO_SUCH_KEY, which is not set"):
            policy(**options)


def test_written_options_name_variables_only_and_fit_after_a_rotation(policy, monkeypatch):
    options = policy(**SECRETIVE).options
    saved = redact(asdict(options))
    assert saved["comparator_api_key_env"] == VARIABLE and saved["comparator_api_headers"] == {"X-Other-Token": "<redacted>"}
    monkeypatch.setenv(VARIABLE, "rotated")
    check_compatible(saved, redact(asdict(policy(**SECRETIVE).options)))


def test_a_secret_in_a_header_of_an_unusual_name_is_not_shown(policy):
    one = policy(headers={"X-Team": SECRET})
    assert not shows_secret(repr(one) + repr(one.options) + json.dumps(redact(asdict(one.options))))


# ---- options ----


def test_names_of_formats():
    names = {
        "generic": ["generic", "GENERIC"],
        "openai": ["openai", "openai_chat", "chat", "OpenAI"],
        "anthropic": ["anthropic", "anthropic_messages", "messages"],
        "openai_responses": ["openai_responses", "responses", "codex", "openai-responses"],
    }
    for known, aliases in names.items():
        assert {canonical_format(alias) for alias in aliases} == {known}


@pytest.mark.parametrize("name", ["opena", "", None, 3])
def test_an_unknown_format_is_an_error_that_names_the_known_ones(policy, name):
    with pytest.raises(ValueError, match=r"'generic', 'openai' \(also 'openai_chat', 'chat'\), 'anthropic'.*, 'openai_responses'"):
        policy(name)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timeout", 0),
        ("timeout", float("inf")),
        ("max_n_per_request", 0),
        ("concurrency", 0),
        ("max_attempts", 0),
        ("retry_wait", -1),
        ("max_retry_wait", -1),
        ("response_field", ""),
        ("url", "ftp://host"),
        ("url", "http://${HOST}/v1"),
        ("url", None),
        ("headers", ["a"]),
        ("headers", {"a b": "c"}),
        ("headers", {"a": 1}),
        ("key_header", "a b"),
        ("key_prefix", "a\n"),
        ("extra_body", [1]),
        ("extra_body", {"x": object()}),
        ("extra_body", {"x": float("nan")}),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_name(policy, option, value):
    with pytest.raises(ValueError, match=f"comparator_api_{option}"):
        policy(**{option: value})


def test_a_header_cannot_be_given_twice(policy):
    with pytest.raises(ValueError, match=r"comparator_api_headers must not hold 'Authorization' beside comparator_api_key_env"):
        policy(key_env=VARIABLE, headers={"authorization": "${OTHER}"})


def test_the_proxy_of_the_environment_is_used(scripted, policy, server, monkeypatch):
    seen = []
    server.clear()
    server.expect_request("/v1").respond_with_handler(
        lambda request: (seen.append(request.headers["Host"]), Response(json.dumps(openai_answer("a"))))[1]
    )
    monkeypatch.setenv("http_proxy", server.url_for(""))
    assert ask(policy(url="http://far.invalid/v1")) == ["a"]
    assert seen == ["far.invalid"]


@pytest.mark.parametrize("missing", ["httpx", "tenacity"])
def test_without_the_extra_the_error_says_what_to_install(policy, monkeypatch, missing):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "learners.preference.endpoint_http")
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r"pip install 'llm-envs\[api\]'"):
        policy()
