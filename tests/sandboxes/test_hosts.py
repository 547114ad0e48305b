"""Which hosts a sandbox without a network may reach."""

import pytest

from sandboxes.hosts import AllowList


class TestAllowList:
    def test_names_ports_and_everything_below_a_name(self):
        allowed = AllowList.of(["Host.NET", "*.example.org", "other.org:8443", "[2001:db8::1]:80", "10.0.0.1"])
        for host, port in [("host.net", 443), ("host.net", 80), ("a.b.example.org", 443), ("other.org", 8443)]:
            assert allowed.has(host, port)
        for host, port in [("x.host.net", 443), ("host.net", 22), ("example.org", 443), ("notexample.org", 80)]:
            assert not allowed.has(host, port)
        assert not allowed.has("other.org", 443)
        assert allowed.has("[2001:db8::1]", 80)

    def test_only_public_and_listed_addresses(self):
        allowed = AllowList.of(["10.0.0.1", "[fd00::1]:80"])
        for address in ("10.0.0.1", "fd00::1", "8.8.8.8", "2606:4700::1111"):
            assert allowed.has_address(address, 80)
        private = ["10.0.0.2", "127.0.0.1", "169.254.169.254", "192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1"]
        in_disguise = ["::ffff:8.8.8.8", "64:ff9b::a00:1", "2002:a00:1::"]
        for address in [*private, *in_disguise, "255.255.255.255", "::1", "::", "fe80::1", "fd00::2"]:
            assert not allowed.has_address(address, 80), address
        assert not allowed.has_address("fd00::1", 443)

    @pytest.mark.parametrize("host", ["", "http://x", "a b", "x:port", "*", "x/y", "*.*.x", "10.0.0.0/8", "[x]"])
    def test_what_is_no_host_is_the_callers_mistake(self, host):
        with pytest.raises(ValueError, match="is no host"):
            AllowList.of([host])
