"""Rewards: any function ``(prompt, completion, answer) -> float``, sync or async."""

from workbench.rewards.check import Reward, check_reward, reward_name
from workbench.rewards.rows import Row
from workbench.rewards.score import Scorer, score_all
from workbench.rewards.worker import REWARD_THREAD

__all__ = ["REWARD_THREAD", "Reward", "Row", "Scorer", "check_reward", "reward_name", "score_all"]
