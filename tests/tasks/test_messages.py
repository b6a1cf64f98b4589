"""Prompts that are conversations."""

import pickle

import pytest

from workbench.errors import ConfigError
from workbench.tasks import Conversation, Message, from_list, reasoning_gym
from workbench.tasks.messages import Chat, given, read_prompt

TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
PAIRS = [(f"q{n}", str(n)) for n in range(20)]


def test_a_conversation_reads_well_and_crosses_as_plain_values() -> None:
    talk = read_prompt(TALK, "item 0")
    assert isinstance(talk, Conversation)
    assert str(talk) == "system: Be brief.\nuser: 2 + 2?"
    assert list(talk) == [("system", "Be brief."), ("user", "2 + 2?")]
    assert talk.dicts() == TALK == given(talk)
    assert len({talk, pickle.loads(pickle.dumps(talk)), read_prompt([tuple(m.values()) for m in TALK], "")}) == 1


def test_keys_that_arrow_fills_with_none_are_none() -> None:
    assert read_prompt([{"role": "user", "content": "hi", "name": None}], "") == Conversation((Message("user", "hi"),))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"row 3: its prompt is None\n  fix: a prompt is a text that is not empty, or messages"),
        ("", "row 3: its prompt is ''"),
        ([], r"row 3: its prompt is \[\]"),
        (TALK[0], "row 3: its prompt is {'role'"),
        (["hi"], "row 3, message 0: 'hi' is no message"),
        ([{"from": "human", "value": "hi"}], r"message 0: its keys are 'from', 'value'\n  fix: 'role' and 'content' alone"),
        ([{"role": "user", "content": "a", "tool_calls": [1]}], "its keys are 'role', 'content', 'tool_calls'"),
        ([{"role": "human", "content": "a"}], r"message 0: its role is 'human'\n  fix: a role is one of system"),
        ([{"role": "user", "content": [{"type": "image"}]}], "message 0: its content is a list"),
        ([*TALK, {"role": "assistant", "content": "4"}], "row 3: its last message is the assistant's"),
        (TALK[::-1], "row 3: a system message stands after others"),
    ],
)
def test_what_is_no_prompt(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_prompt(value, "row 3")


def test_chat_makes_a_text_a_users_message() -> None:
    assert Chat()("hi") == "hi"
    assert list(Chat(True)("hi")) == [("user", "hi")]
    put = Chat(True, "Be brief.")("hi")
    assert list(put) == [("system", "Be brief."), ("user", "hi")]
    assert given(put) == "hi"  # as the data set has it


def test_a_system_message_comes_before_a_conversation() -> None:
    talk = Conversation((Message("user", "hi"),))
    assert Chat()(talk) == Chat(True)(talk) == talk
    assert list(Chat(False, "Be brief.")(talk)) == [("system", "Be brief."), ("user", "hi")]


def test_a_system_message_that_has_no_effect_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"system='Be brief.': without chat=True plain prompts have no system message"):
        from_list(PAIRS, scorer="exact", system="Be brief.")
    with pytest.raises(ConfigError, match="without chat=True"):
        reasoning_gym("chain_sum", system="Be brief.")
    with pytest.raises(ConfigError, match=r"item 20 of the list has a system message of its own"):
        from_list([*PAIRS, (TALK, "4")], scorer="exact", chat=True, system="Be brief.")
    with pytest.raises(ConfigError, match="an empty system message"):
        Chat(True, "")


def test_from_list_takes_conversations_and_splits_them() -> None:
    task = from_list([([{"role": "user", "content": text}], answer) for text, answer in PAIRS], scorer="exact", held_out=0.3)
    training, kept = ({str(e.text) for e in examples} for examples in (task.train(0, 0, 40), task.held_out(20)))
    assert training
    assert kept
    assert training | kept == {f"user: {text}" for text, _ in PAIRS}
    assert not training & kept
    assert task.held_out(1)[0].given[0]["role"] == "user"


def test_chat_moves_no_prompt_to_the_other_side_of_the_split() -> None:
    plain, chat = from_list(PAIRS, scorer="exact"), from_list(PAIRS, scorer="exact", chat=True, system="Be brief.")
    for one, other in ((plain.held_out(20), chat.held_out(20)), (plain.train(3, 0, 40), chat.train(3, 0, 40))):
        assert [e.text for e in one] == [e.given for e in one] == [e.given for e in other]
        assert [str(e.text) for e in other] == [f"system: Be brief.\nuser: {e.text}" for e in one]


def test_reasoning_gym_as_a_chat() -> None:
    plain, chat = reasoning_gym("chain_sum"), reasoning_gym("chain_sum", chat=True, system="Think.")
    assert [m.role for m in chat.train(0, 0, 1)[0].text] == ["system", "user"]
    assert [e.given for e in chat.train(0, 0, 5)] == [e.text for e in plain.train(0, 0, 5)]
