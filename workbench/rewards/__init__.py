"""Rewards: any function ``(prompt, completion, answer) -> float``, sync or async."""

from workbench.rewards.check import Reward, check_reward, reward_name
from workbench.rewards.score import Row, Scorer, score_all

__all__ = ["Reward", "Row", "Scorer", "check_reward", "reward_name", "score_all"]
