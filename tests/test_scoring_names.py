"""Short names of agents: no two alike, and of each what tells it from the others."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from env_server.scoring.names import LIMIT, short_names

LOCAL, OTHER = "base_url=http://127.0.0.1:8000/v1", "base_url=http://gpu:8000/v1"
LONG = "m" * 60


@pytest.mark.parametrize(
    ("agents", "shown"),
    [
        (["oracle", ""], ["(none)", "oracle"]),
        (["openai:gpt-5.4?reasoning_effort=low"], ["openai:gpt-5.4"]),
        (
            ["openai:gpt-5.4?reasoning_effort=low", "openai:gpt-5.4?reasoning_effort=high"],
            ["openai:gpt-5.4 reasoning_effort=high", "openai:gpt-5.4 reasoning_effort=low"],
        ),
        (["openai:m", "openai:m?seed=1"], ["openai:m", "openai:m seed=1"]),
        ([f"chat:a?{LOCAL}", f"chat:b?{LOCAL}"], ["chat:a", "chat:b"]),
        ([f"chat:a?{LOCAL}", f"chat:a?{OTHER}"], ["chat:a @127.0.0.1:8000", "chat:a @gpu:8000"]),
        (
            [f"chat:a?{LOCAL}&seed=1", f"chat:a?{OTHER}&seed=2"],
            ["chat:a seed=1", "chat:a seed=2"],
        ),
        (["chat:a", "chat:a [rails=x]"], ["chat:a", "chat:a [rails=x]"]),
        (["chat:a [x]", "chat:a?seed=1 [x]"], ["chat:a [x]", "chat:a seed=1 [x]"]),
        ([f"chat:a?{LOCAL}", "chat:a"], ["chat:a", "chat:a @127.0.0.1:8000"]),
        (["what?ever", "what?else"], ["what?else", "what?ever"]),
        ([f"chat:{LONG}1{LONG}", f"chat:{LONG}2{LONG}"], [" #1", " #2"]),
        (["bell\x07"], ["bell\\x07"]),
    ],
)
def test_a_short_name_is_what_tells_an_agent_from_those_beside_it(agents, shown):
    found = list(short_names(agents).values())
    assert all(name.endswith(end) for name, end in zip(found, shown, strict=True))
    assert all(name == end for name, end in zip(found, shown, strict=True) if len(name) < LIMIT)


@given(
    st.lists(
        st.one_of(
            st.text(max_size=60),
            st.builds(
                "{}:{}?{}={}&base_url={}{}".format,
                st.sampled_from(["chat", "json"]),
                st.sampled_from("ab"),
                st.sampled_from(["seed", "temperature", "base_url"]),
                st.sampled_from(["1", "2"]),
                st.sampled_from(["http://a/v1", "http://a/v2", "http://b", "[", LONG]),
                st.sampled_from(["", " [tools=renamed]", "]"]),
            ),
        )
    )
)
@example(["\x07", "\\x07"])
@settings(deadline=None, max_examples=60)
def test_no_two_agents_have_one_name_and_every_name_is_short(agents):
    found = short_names(agents)
    assert set(found) == set(agents)
    assert len(set(found.values())) == len(found)
    assert all(len(name) <= LIMIT + len(f" #{len(found)}") for name in found.values())
    assert all(name.isprintable() for name in found.values())
