"""From where on a live run is said to go wrong: every number in one place, with its reason."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Thresholds of all signs. Steps are numbers of steps, KL and entropy nats per token, ``*_noise`` standard errors."""

    memory: int = 200  # steps that are looked back at; bounds memory and time however long the run is
    begin: int = 10  # first steps, which later ones are compared with: their median shrugs off a few odd ones
    calm: int = 5  # steps without a sign until a finding is over: one good step in a bad run is no end
    turned: float = 0.2  # a temperature or max_tokens moved by more: what was sampled before is no measure any more

    kl_steps: int = 5  # median of so many: one step's estimate may be ten times its neighbours' (seen in healthy runs, with k3)
    kl_level: float = 1.0  # tokens are on average e times likelier than under the base; the demo, without a penalty, learns at 0.2 to 0.6
    kl_before: int = 20  # steps to compare with; KL rises from 0 to its level at any run's beginning, by factors
    kl_factor: float = 4.0  # times the median of those; a steady rise from 0 makes 2.2
    kl_rise: float = 0.1  # and by so much at least: four times nearly nothing is nothing
    kl_noise: float = 5.0  # and by so many of their deviations: of a few short completions the estimate is mostly noise
    kl_weight: float = 0.04  # suggested where there is no penalty yet: GRPO's (arXiv 2402.03300, section 4.1.1)

    value_steps: int = 3  # median of so many: the loss of one odd batch says nothing
    value_least: int = 15  # steps to compare with: the loss of a new critic falls by orders of magnitude first
    value_factor: float = 10.0  # times its own median: an order of magnitude is no hard batch
    value_share: float = 0.5  # of the rewards' variance: (r - mean)² / 2 is the loss of a critic that knows only the mean; below it is fine
    variance_steps: int = 40  # with a median explained variance below 0: a new critic has that for a while
    variance_last: int = 10  # and of these last too: else it is getting better

    entropy_steps: int = 5
    entropy_share: float = 0.2  # of the run's beginning; most of the entropy is spent early in any run (arXiv 2505.22617)
    entropy_floor: float = 0.05  # e^0.05: on average 1.05 tokens to choose from; samples of a group are copies then
    solved: float = 0.2  # of the rewards' spread at the beginning: with less of it, and a higher mean, the task is learnt; that may be sure

    hack_steps: int = 30  # the first third against the last; shorter, two noisy lines rise together by chance
    hack_correlation: float = 0.7  # Spearman's; of 30 independent pairs it has a probability below 1e-4
    hack_noise: float = 4.0  # by which the reward must have risen, and the other too
    length_growth: float = 1.5  # times; reasoning grows too, but over thousands of steps (DeepSeek-R1-Zero, arXiv 2501.12948, figure 3)
    repetition_growth: float = 0.1  # more of a completion's 4-grams: enough to be read in the samples

    skipped_steps: int = 8  # in a row: with half of the groups flat and two groups a step a chance of 1e-5
    flat_steps: int = 12  # in a row
    flat_share: float = 0.9  # of the groups without a variance: nine tenths of the sampling is for nothing

    cut_steps: int = 10
    cut_share: float = 0.2  # of the completions; below it is a tail that any limit cuts off
    cut_growth: float = 0.15  # more than at the run's beginning
    cut_noise: float = 4.0

    drift_steps: int = 8  # on each side of a change: the least that a line and its noise can be told from
    drift_noise: float = 5.0  # after a change that is known
    drift_silent_noise: float = 8.0  # where nothing says that anything changed: this is asked at every step
    drift_spread: float = 0.25  # of the rewards' deviation within a step: less is seen in a large batch, and changes little
    drift_kl: float = 0.05  # that the policy has moved at most; else it may have learnt

    load_steps: int = 5  # in a row that show a sign of the load; a checkpoint or another job's start slows one or two
    data_share: float = 0.2  # of a step's time that it waits for prompts; usually that is near 0, since they are tokenized ahead
    use_fall: float = 0.7  # of the use in the first steps, or less; lengths and batches move it by some percent
    use_least: float = 0.15  # of all time, that the use must have fallen by: 9 % instead of 13 % is no loss
    use_noise: float = 4.0
    traffic_rise: float = 1.5  # times; gradients and weights have the same size in every step
    traffic_least: float = 1.0  # GB/s more: a link of 16 to 900 does not notice less
    full_share: float = 0.9  # of a GPU's memory
    idle_share: float = 0.3  # of the time at work with a kernel running: the rest is the host's, between them
    rank_factor: float = 1.25  # times the median of the other ranks; packed batches differ by some percent, and not always on the same rank
    rank_least: float = 0.02  # seconds more: phases of a few milliseconds scatter by factors
    brief_steps: int = 3  # in a row, of what is a state of the device and not a mean
    nearly_full: float = 0.97  # of a GPU's memory; 140 GiB leave 4 for a longer batch
    slowed_share: float = 0.5  # of the samples: short dips at a change of load are how clocks are steered
    turn_busy: float = 0.8  # mean of the devices whose phase it is, "95"
    turn_idle: float = 0.2  # and of the others, "5"
    turn_share: float = 0.2  # of a step that either phase takes at least: less is not worth a change
    preempted_share: float = 0.01  # of a step's completions that the engine computed again: now and then one is nothing
    queue_factor: float = 2.0  # requests that wait for each that is decoded: the rollout is made in three turns and more
    tail_share: float = 0.15  # of a step's completions that are decoded together on average; equal lengths make 1, reasoning 0.3 to 0.5
