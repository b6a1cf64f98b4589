"""Reward models: scores that don't hang on the batch, how prompts become tokens, and models that are none."""

import asyncio
import json
import pickle
import time

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

from workbench.errors import ConfigError, Stopped
from workbench.rewards import RewardModel, Scorer, score_all, tiny_reward_model
from workbench.rewards.models.dialogue import Dialogue
from workbench.rewards.models.reward_model import batches

ROWS = [("sort cab=", "abc", None), ("x", "", None), ("a longer prompt than the others, " * 3, "with its answer", None), ("1+1=", "2", 2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_reward_model(tmp_path_factory.mktemp("reward-model"))


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    return tiny_reward_model(tmp_path_factory.mktemp("reward-model-chat"), chat=True)


def by_hand(folder, texts):
    """Each text alone through transformers, no padding at all."""
    model, dialogue = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval(), Dialogue(str(folder))
    with torch.no_grad():
        ids = [dialogue.raw(text, add_special_tokens=False, return_tensors="pt").input_ids for text in texts]
        return [model(row).logits.item() for row in ids]


def test_scores_are_the_models_own_however_rows_are_batched(folder):
    expected = by_hand(folder, [prompt + completion for prompt, completion, _ in ROWS])
    assert max(expected) - min(expected) > 0.01, "scores that are all the same would prove nothing"
    for batch_tokens in (1, 130, 10_000):
        scores = score_all(RewardModel(folder, dtype="float32", batch_tokens=batch_tokens), ROWS)
        assert scores == pytest.approx(expected, abs=1e-5)
    assert RewardModel(folder, dtype="float32")(*ROWS[0]) == pytest.approx(expected[0], abs=1e-5)


def test_a_chat_template_gets_messages(chat):
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
    dialogue = Dialogue(str(chat))
    assert dialogue.raw.decode(dialogue.ids(("hello", "hi", None))) == "[user]hello<eos>[assistant]hi<eos>"
    assert dialogue.raw.decode(dialogue.ids((messages, "hi", None))) == "[system]be kind<eos>[user]hello<eos>[assistant]hi<eos>"
    (expected,) = by_hand(chat, ["[user]hello<eos>[assistant]hi<eos>"])
    assert score_all(RewardModel(chat, dtype="float32"), [("hello", "hi", None)]) == pytest.approx([expected], abs=1e-5)


def test_messages_without_a_template_are_refused(folder):
    with pytest.raises(ConfigError, match=r"a prompt of messages: the tokenizer of .* has no chat template"):
        score_all(RewardModel(folder), [([{"role": "user", "content": "hi"}], "x", None)])


def test_a_template_that_refuses_a_role(chat, tmp_path):
    dialogue = Dialogue(str(chat))
    dialogue.raw.chat_template = "{{ raise_exception('no system here') }}"
    with pytest.raises(ConfigError, match=r"a conversation \(user\): the reward model's chat template refuses it: no system here"):
        dialogue.ids(("hello", "hi", None))


@pytest.mark.parametrize(("dtype", "near"), [("bfloat16", 0.1), ("int8", 0.15)])
def test_smaller_types_are_near(folder, dtype, near):
    expected = score_all(RewardModel(folder, dtype="float32"), ROWS)
    spread = max(expected) - min(expected)
    scores = score_all(RewardModel(folder, dtype=dtype), ROWS)
    assert scores != expected
    assert scores == pytest.approx(expected, abs=near * spread)


def test_too_long_rows_lose_their_beginning_and_are_counted(folder):
    (expected,) = by_hand(folder, ["wxyz"])
    with Scorer(RewardModel(folder, dtype="float32", max_length=4)) as scorer:
        scores = scorer.score([("abcdefgh", "wxyz", None), ("wx", "yz", None)])
        assert scores == pytest.approx([expected] * 2, abs=1e-5)
        assert scorer.numbers() == {"cut_rows": 0.5}


def test_the_models_window_is_the_usual_length(folder):
    reward = RewardModel(folder)
    reward.prepare("cpu")
    assert len(reward.dialogue.shortened(reward.dialogue.ids(("x" * 600, "", None)))) == 512


def test_its_fingerprint_is_of_weights_and_tokens(folder, chat, tmp_path):
    prints = [RewardModel(folder, dtype="float32").fingerprint() for _ in range(2)]
    prints += [RewardModel(folder, dtype=dtype).fingerprint() for dtype in ("bfloat16", "int8")]
    prints += [RewardModel(chat, dtype="float32").fingerprint(), RewardModel(folder, dtype="float32", max_length=8).fingerprint()]
    prints += [RewardModel(tiny_reward_model(tmp_path, seed=1), dtype="float32").fingerprint()]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 6


def test_batches_by_hand():
    assert list(batches([3, 9, 1, 4, 4], 12)) == [[1], [3, 4, 0], [2]]
    assert list(batches([], 12)) == []
    assert list(batches([50], 12)) == [[0]]


def test_an_encoder_with_a_head_of_its_own(tmp_path, folder):
    config = BertConfig(vocab_size=200, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=1)
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    Dialogue(str(folder)).raw.save_pretrained(tmp_path)
    reward = RewardModel(tmp_path, dtype="float32")
    alone = [reward(*row) for row in ROWS]
    assert score_all(reward, ROWS) == pytest.approx(alone, abs=1e-5)


def test_pickled_before_and_after_loading(folder):
    reward = RewardModel(folder, dtype="float32")
    small = len(pickle.dumps(reward))
    reward.prepare("cpu")
    assert len(pickle.dumps(reward)) == small < 1000
    assert pickle.loads(pickle.dumps(reward))(*ROWS[0]) == reward(*ROWS[0])


def test_loaded_once(folder):
    reward = RewardModel(folder)
    reward.prepare("cpu")
    loaded = reward._loaded
    score_all(reward, ROWS)
    assert reward._loaded is loaded


def test_a_stop_is_heard_between_batches(folder):
    reward, calls = RewardModel(folder, batch_tokens=1), []
    reward.prepare("cpu")
    reward._loaded.forward = lambda ids: calls.append(1) or time.sleep(0.05) or [0.0]
    begin = time.monotonic()
    with Scorer(reward) as scorer, pytest.raises(Stopped):
        scorer.score(ROWS * 100, should_stop=lambda: time.monotonic() > begin + 0.2)
    assert len(calls) < 12


def test_ids_are_scored_as_the_rows_they_come_from(folder):
    reward = RewardModel(folder, dtype="float32")
    reward.prepare("cpu")
    ids = [reward.dialogue.ids(row) for row in ROWS]
    assert asyncio.run(reward.score_ids(ids)) == pytest.approx(score_all(reward, ROWS))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, r"it is LlamaForCausalLM, which gives no score\n  fix: give a model whose kind ends in"),
        ({}, r"it is a model of no said kind"),
        ({"architectures": ["LlamaForSequenceClassification"]}, r"with 2 labels: which of them would be the reward\?"),
        ({"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}}, r"with 3 labels"),
        ("nonsense", r"its config\.json can't be read"),
        (None, r"its config\.json can't be read"),
    ],
)
def test_models_that_give_no_reward_are_refused_where_they_are_written(tmp_path, config, message):
    if config is not None:
        (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    with pytest.raises(ConfigError, match=message):
        RewardModel(tmp_path)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"dtype": "float16"}, r"dtype='float16'.*bfloat16, float32, int8"),
        ({"batch_tokens": 0}, "1 or more"),
        ({"max_length": 2.5}, "float"),
    ],
)
def test_arguments_are_checked(folder, named, message):
    with pytest.raises(ConfigError, match=message):
        RewardModel(folder, **named)


def test_a_name_that_the_hub_does_not_give():
    with pytest.raises(ConfigError, match=r"reward model 'nobody/nothing'"):
        score_all(RewardModel("nobody/nothing"), ROWS)
