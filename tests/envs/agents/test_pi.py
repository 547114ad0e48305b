"""pi in a container without network. Its package is installed, once, where it is asked for."""

import pytest
from real_agents import BROKEN, Says, check_linear, check_malformed

pytestmark = [pytest.mark.slow, pytest.mark.docker]


async def test_linear_work_is_one_row(docker_backend, base_image, fitted):
    await check_linear(docker_backend, base_image, "pi", fitted)


@pytest.mark.parametrize("text", BROKEN.values(), ids=list(BROKEN))
async def test_what_was_sampled_is_counted_however_it_is_spoiled(docker_backend, base_image, hermes, text):
    await check_malformed(docker_backend, base_image, "pi", hermes, Says(text))
