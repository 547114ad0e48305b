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

    def test_ranges_of_addresses(self):
        allowed = AllowList.of(["10.1.0.0/16", "8.8.0.0/16:53", "2001:DB8::/32", "2606:4700::1111", " fd00::/8 "])
        for host, port in [("10.1.2.3", 443), ("8.8.4.4", 53), ("[2001:db8::7]", 80), ("[2606:4700::1111]", 443)]:
            assert allowed.has(host, port) and allowed.has_address(host.strip("[]"), port), host
        assert allowed.has_address("fd12::1", 80)
        for host, port in [("10.2.0.1", 443), ("8.8.4.4", 443), ("[2606:4700::1112]", 443), ("10.1.2.3.org", 443)]:
            assert not allowed.has(host, port), host

    def test_a_range_of_the_internet_holds_nothing_private(self):
        allowed = AllowList.of(["0.0.0.0/0", "::/0", "64:ff9b::/96"])
        assert allowed.has("8.8.8.8", 443)
        for address in (
            "127.0.0.1",
            "10.0.0.1",
            "169.254.169.254",
            "::1",
            "fd00::1",
            "64:ff9b::a00:1",
            "::ffff:127.0.0.1",
        ):
            assert not allowed.has(f"[{address}]" if ":" in address else address, 80), address
            assert not allowed.has_address(address, 80), address

    @pytest.mark.parametrize(
        "host",
        ["", "http://x", "a b", "x:port", "*", "x/y", "*.*.x", "10.0.0.1/8", "[x]", "fe80::1%eth0", "10.0.0.0/8/8"],
    )
    def test_what_is_no_host_is_the_callers_mistake(self, host):
        with pytest.raises(ValueError, match="is no host"):
            AllowList.of([host])
