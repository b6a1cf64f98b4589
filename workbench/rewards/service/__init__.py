"""A reward that a server gives: ``client`` is the reward, ``request`` one question and its retries, ``breaker`` when not to ask."""
