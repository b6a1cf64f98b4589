"""What ``wb.Ray`` takes and refuses."""

import pytest

from workbench.errors import ConfigError
from workbench.runtime.settings import Ray, check_address, host_and_port


def test_timeouts_by_purpose():
    settings = Ray(timeouts={"gradients": 30})
    assert settings.timeout("gradients") == 30
    assert settings.timeout("control") == 600


@pytest.mark.parametrize(
    ("address", "parts"), [("10.0.0.1:6379", ("10.0.0.1", 6379)), ("[fe80::1]:1", ("fe80::1", 1)), ("head:65535", ("head", 65535))]
)
def test_addresses(address, parts):
    assert host_and_port(address) == parts
    Ray(address=address)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"address": "head"}, "that is no address"),
        ({"address": "head:70000"}, "that is no address"),
        ({"address": 6379}, "that is a int"),
        ({"address": "ray://head:10001"}, "a Ray client runs the driver on another machine"),
        ({"timeouts": {"gradient": 3}}, "no group has that purpose\n.*write one of control, gradients, shards, tensor"),
        ({"timeouts": {"control": 0}}, "that time is over before it begins"),
        ({"timeouts": {"control": float("inf")}}, "no finite number"),
        ({"timeouts": 30}, "give seconds by purpose"),
        ({"compression": "int8"}, "there is no such hook\n.*fp16, bf16, powersgd"),
        ({"start_timeout": -1}, "over before it begins"),
        ({"env": {"NCCL_DEBUG": 1}}, "write 'NCCL_DEBUG': '1'"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "change the map"),
        ({"timeout": {}}, "write timeouts="),
        ({"adress": "auto"}, "write address="),
    ],
)
def test_what_is_refused(fields, found):
    with pytest.raises(ConfigError, match=found):
        Ray(**fields)


def test_the_variable_is_named_where_it_is_wrong():
    with pytest.raises(ConfigError, match="RAY_ADDRESS=ray://x:1: a Ray client"):
        check_address("RAY_ADDRESS=ray://x:1", "ray://x:1")
