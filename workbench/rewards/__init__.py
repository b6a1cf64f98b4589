"""Rewards: any function ``(prompt, completion, answer) -> float``, reward models, services, and combinations of them."""

from workbench.rewards.check import Reward, check_reward, reward_name
from workbench.rewards.combine import Clipped, Ensemble, Weighted
from workbench.rewards.model import RewardModel
from workbench.rewards.rows import Row
from workbench.rewards.score import Scorer, score_all
from workbench.rewards.service import Service
from workbench.rewards.shape import LengthPenalty, Smoothed
from workbench.rewards.tiny import tiny_reward_model
from workbench.rewards.worker import REWARD_THREAD

__all__ = [
    "REWARD_THREAD",
    "Clipped",
    "Ensemble",
    "LengthPenalty",
    "Reward",
    "RewardModel",
    "Row",
    "Scorer",
    "Service",
    "Smoothed",
    "Weighted",
    "check_reward",
    "reward_name",
    "score_all",
    "tiny_reward_model",
]
