"""Rewards: any function ``(prompt, completion, answer) -> float``, reward models, services, and combinations of them.

``check`` says what a reward is, ``rows`` calls one, ``score`` does so for a step, in the thread of ``worker``; ``combine`` and ``shape``
make rewards of rewards. ``models/`` are reward models, ``server/`` serves any reward, ``service/`` asks a server, ``wire/`` is what these
two share, and by its ``fingerprint`` a client notices another version.
"""

from workbench.rewards.check import Reward, check_reward, reward_name
from workbench.rewards.combine import Clipped, Ensemble, Weighted
from workbench.rewards.models.reward_model import RewardModel
from workbench.rewards.models.tiny import tiny_reward_model
from workbench.rewards.rows import Row
from workbench.rewards.score import Scorer, score_all
from workbench.rewards.service.client import Service
from workbench.rewards.shape import LengthPenalty, Smoothed
from workbench.rewards.worker import REWARD_THREAD, check_outside

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
    "check_outside",
    "check_reward",
    "reward_name",
    "score_all",
    "tiny_reward_model",
]
