"""What is hidden in texts, and what is left alone."""

import pytest

from workbench.headless.masks import Masks

LONG = "aB3" * 12


@pytest.mark.parametrize(
    ("text", "left", "what"),
    [
        (f"login hf_{LONG} ok", "login *** ok", "a Hugging Face token"),
        (f"ghp_{LONG}", "***", "a GitHub token"),
        (f"key=sk-proj-{LONG}.", "key=***.", "an API key"),
        ("AKIAIOSFODNN7EXAMPLE", "***", "an AWS key"),
        ("Authorization: Bearer abcdef.1234-56", "Authorization: Bearer ***", "a bearer token"),
        ("http://bob:hunter2hunter@host:8080/score", "http://bob:***@host:8080/score", "a password in an address"),
        ('Service("http://h", token="s3cret-of-mine")', 'Service("http://h", token="***")', "a secret that is given by name"),
        ("{'api_key': 'abcd1234efgh'}", "{'api_key': '***'}", "a secret that is given by name"),
        ("WORKBENCH_REWARD_TOKEN=abcdefgh12 serve", "WORKBENCH_REWARD_TOKEN=*** serve", "a secret that is given by name"),
        ('password = "p@ss w0rd!x9"', 'password = "***"', "a secret that is given by name"),
        ("AWS_SECRET_ACCESS_KEY = 'wJalrX$K7MDENG'", "AWS_SECRET_ACCESS_KEY = '***'", "a secret that is given by name"),
        ('os.environ["WANDB_API_KEY"] = "0a1b2c3d4e"', 'os.environ["WANDB_API_KEY"] = "***"', "a secret that is given by name"),
        ('setdefault("HF_TOKEN", "abcdefgh12")', 'setdefault("HF_TOKEN", "***")', "a secret that is given by name"),
        ('token = b"abcdefgh12"', 'token = b"***"', "a secret that is given by name"),
        (f'wandb.login(key="{"0a" * 20}")', 'wandb.login(key="***")', "a key of Weights & Biases"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "***", "a private key"),
        (f"xoxb-1234-{LONG}", "***", "a Slack token"),
        (f"glpat-{LONG}", "***", "a GitLab token"),
        (f"AIza{'x' * 35}", "***", "a Google key"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***", "a password in a header"),
        ("http://h/x?token=abcdefgh12&y=1", "http://h/x?token=***&y=1", "a token in an address"),
    ],
)
def test_tokens_are_hidden_and_told_of(text: str, left: str, what: str) -> None:
    masks = Masks()
    assert masks.hide(text) == left
    assert masks.taken() == ([what], 0)
    assert masks.hide(left) == left
    assert masks.taken() == ([], 0)


@pytest.mark.parametrize(
    "text",
    [
        'tokenizer(eos_token="<|endoftext|>", pad_token="<pad>")',
        "32k tokens/s, max_tokens=256, tokens_prompt = 3584",
        "proof 0f3a9c1d22e47b60 in 4.5 ms",
        'print("password: short")',
        "see https://host.org/home/page and a/home/b",
        "half_life hf_short",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    masks = Masks()
    assert masks.hide(text) == text
    assert masks.taken() == ([], 0)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/alice/runs/x and /Users/bob/y", "~/runs/x and ~/y"),
        ('File "/root/nb/cell.py"', 'File "~/nb/cell.py"'),
        (r"C:\Users\carol\runs", r"~\runs"),
        (r"'C:\\Users\\carol\\runs'", r"'~\\runs'"),
        ("/data/people/me/runs, /data/people/mean", "~/runs, /data/people/mean"),
    ],
)
def test_homes_are_short(text: str, left: str) -> None:
    masks = Masks(home="/data/people/me")
    assert masks.hide(text) == left
    assert masks.taken()[1] >= 1


def test_colours_of_a_terminal_hide_nothing() -> None:
    masks = Masks()
    assert masks.hide(f"\x1b[31mhf_{LONG}\x1b[0m") == "***"
    assert masks.hide("token\x1b[39;49m=\x1b[33m'abcdefgh12'\x1b[39m") == "token='***'"
    assert masks.hide("\x1b[31mred\x1b[0m") == "\x1b[31mred\x1b[0m"


def test_the_secrets_of_this_process_are_known_by_their_names() -> None:
    masks = Masks.of_this_machine({"WORKBENCH_REWARD_TOKEN": "correct horse", "SHORT_TOKEN": "no", "PATH": "/usr/bin:/bin"})
    assert masks.hide("it said: correct horse; no; /usr/bin:/bin") == "it said: ***; no; /usr/bin:/bin"
    assert masks.taken() == (["the value of WORKBENCH_REWARD_TOKEN"], 0)
