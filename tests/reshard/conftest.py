"""Four processes that move weights between them, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.models.crew import Crew


@pytest.fixture(scope="package")
def crew() -> Iterator[Crew]:
    crew = Crew(4)
    yield crew
    crew.close()
