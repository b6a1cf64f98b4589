"""Prompts to token ids, with and without a chat template."""

from pathlib import Path

import pytest

from workbench.errors import ConfigError
from workbench.models.tokenizer import Tokenizer
from workbench.tasks import Conversation, Message

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
PIECES = ["<pad>", "<eos>", "<bos>", "<system>", "<user>", "<assistant>", "\n", *"abc "]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of one token per piece that begins every text with <bos>, as Llama's does, and has a chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(PIECES)}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    core.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    raw = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")
    raw.add_special_tokens({"additional_special_tokens": [AddedToken(f"<{role}>") for role in ("system", "user", "assistant")]})
    raw.chat_template = TEMPLATE
    path = tmp_path_factory.mktemp("chat-tokenizer")
    raw.save_pretrained(path)
    return path


@pytest.fixture
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(folder)


def names(ids: tuple[int, ...]) -> list[str]:
    return [PIECES[id] for id in ids]


def test_a_text_is_taken_as_it_stands(tokenizer: Tokenizer) -> None:
    text, ids = tokenizer.encode_prompt("ab")
    assert text == "ab"
    assert names(ids) == ["<bos>", "a", "b"]
    assert ids == tokenizer.encode("ab")


def test_messages_go_through_the_template_and_begin_once(tokenizer: Tokenizer) -> None:
    text, ids = tokenizer.encode_prompt([("system", "a"), ("user", "b c")])
    assert text == "<bos><system>a\n<user>b c\n<assistant>"
    assert names(ids) == ["<bos>", "<system>", "a", "\n", "<user>", "b", " ", "c", "\n", "<assistant>"]


def test_a_tasks_conversation_is_taken_as_it_is(tokenizer: Tokenizer) -> None:
    talk = Conversation((Message("user", "b"),))
    assert tokenizer.encode_prompt(talk) == tokenizer.encode_prompt([("user", "b")])
    assert tokenizer.encode_prompt(talk)[0] == "<bos><user>b\n<assistant>"


def test_a_template_that_refuses_the_messages(tokenizer: Tokenizer, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"a conversation \(user, tool\): the model's chat template refuses it: no tools here"):
        tokenizer.encode_prompt([("user", "a"), ("tool", "b")])


def test_a_model_without_a_template(small_model: Path) -> None:
    found = r"a conversation \(user\): the tokenizer of '.*' has no chat template\n  fix: give the task chat=False"
    with pytest.raises(ConfigError, match=found):
        Tokenizer(small_model).encode_prompt([("user", "a")])


def test_a_text_of_nothing(small_model: Path) -> None:
    with pytest.raises(ConfigError, match="tokenize '': no tokens came out"):
        Tokenizer(small_model).encode_prompt("")


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tokenizer of"):
        Tokenizer(tmp_path)
