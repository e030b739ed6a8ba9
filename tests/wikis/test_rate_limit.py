"""Rate limits: every client is limited, and no other client is affected."""

import threading
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.errors import TooManyRequests
from wikiholt.wikis.rate_limit import MAX_FAILURES_PER_MINUTE, RateLimiter, get_key_prefix, get_network

ADDRESS, OTHER_ADDRESS = "192.0.2.1", "192.0.2.2"


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limits(clock: FakeClock) -> RateLimiter:
    return RateLimiter(120, 60, clock=clock)


def use_up(limits: RateLimiter, key_id: str | None, address: str = ADDRESS) -> int:
    """How many requests pass at once."""
    passed = 0
    while True:
        try:
            limits.check(key_id, address)
        except TooManyRequests:
            return passed
        passed += 1


@pytest.mark.parametrize(("per_minute", "burst"), [(1, 20), (60, 20), (80, 20), (120, 30), (1200, 300)])
def test_a_quarter_of_a_minutes_requests_may_come_at_once(clock: FakeClock, per_minute: int, burst: int) -> None:
    assert use_up(RateLimiter(per_minute, 60, clock=clock), "key") == burst
    assert use_up(RateLimiter(60, per_minute, clock=clock), None) == burst


def test_tokens_are_refilled_over_time_up_to_the_burst(limits: RateLimiter, clock: FakeClock) -> None:
    assert use_up(limits, None) == 20
    clock.now += 5
    assert use_up(limits, None) == 5
    clock.now += 10_000
    assert use_up(limits, None) == 20


def test_over_a_long_time_no_more_pass_than_the_limit_says(limits: RateLimiter, clock: FakeClock) -> None:
    passed = 0
    for _ in range(600):
        clock.now += 1
        passed += use_up(limits, "key")
    assert passed == pytest.approx(10 * 120, abs=31)


def test_the_allowance_says_what_is_left(limits: RateLimiter, clock: FakeClock) -> None:
    first = limits.check("key", ADDRESS)
    assert (first.limit, first.remaining, first.reset_seconds) == (120, 29, 1)
    for _ in range(9):
        last = limits.check("key", ADDRESS)
    assert (last.remaining, last.reset_seconds) == (20, 5)
    clock.now += 5
    assert limits.check("key", ADDRESS).remaining == 29


def test_a_refusal_gives_a_retry_time_that_is_right(limits: RateLimiter, clock: FakeClock) -> None:
    use_up(limits, None)
    with pytest.raises(TooManyRequests) as caught:
        limits.check(None, ADDRESS)
    assert caught.value.retry_after == 1
    assert caught.value.hint
    clock.now += caught.value.retry_after
    assert limits.check(None, ADDRESS).remaining == 0


def test_a_refused_request_costs_nothing(limits: RateLimiter, clock: FakeClock) -> None:
    use_up(limits, None)
    for _ in range(100):
        with pytest.raises(TooManyRequests):
            limits.check(None, ADDRESS)
    clock.now += 1
    assert limits.check(None, ADDRESS).remaining == 0


def test_keys_and_addresses_are_counted_separately(limits: RateLimiter) -> None:
    assert use_up(limits, "one") == 30
    assert use_up(limits, "two") == 30
    assert use_up(limits, None, ADDRESS) == 20
    assert use_up(limits, None, OTHER_ADDRESS) == 20


def test_zero_means_no_limit(clock: FakeClock) -> None:
    limits = RateLimiter(0, 0, clock=clock)
    for _ in range(1000):
        assert limits.check(None, ADDRESS).limit == limits.check("key", ADDRESS).limit == 0


def test_unknown_keys_block_their_address_and_no_other(limits: RateLimiter, clock: FakeClock) -> None:
    for _ in range(20):
        limits.check_failures(ADDRESS)
        limits.record_failure(ADDRESS)
    with pytest.raises(TooManyRequests) as caught:
        limits.check_failures(ADDRESS)
    limits.check_failures(OTHER_ADDRESS)
    limits.record_failure(ADDRESS)
    clock.now += caught.value.retry_after
    limits.check_failures(ADDRESS)


def test_failures_are_limited_even_where_requests_are_not(clock: FakeClock) -> None:
    limits = RateLimiter(0, 0, clock=clock)
    failed = 0
    for _ in range(120):
        clock.now += 1
        for _ in range(10):
            try:
                limits.check_failures(ADDRESS)
            except TooManyRequests:
                break
            limits.record_failure(ADDRESS)
            failed += 1
    assert failed <= 2 * MAX_FAILURES_PER_MINUTE + 20


def wrong_keys(limits: RateLimiter, address: str, token: str, tries: int = 40) -> int:
    """How many of `tries` attempts with a wrong key are checked instead of refused."""
    refused: list[TooManyRequests] = []
    for _ in range(tries):
        try:
            limits.refuse_key(address, token)
        except TooManyRequests as error:
            refused.append(error)
    assert all(error.retry_after >= 1 and "not affected" in error.hint for error in refused)
    return tries - len(refused)


def test_wrong_keys_are_counted_by_address_and_by_prefix(limits: RateLimiter, clock: FakeClock) -> None:
    key = "wh_abcdefghijkl_"
    assert wrong_keys(limits, ADDRESS, key + "x") == 20
    assert wrong_keys(limits, ADDRESS, "another") == 0, "by address"
    assert wrong_keys(limits, OTHER_ADDRESS, key + "y") == 0, "by prefix"
    assert wrong_keys(limits, OTHER_ADDRESS, "wh_bbbbbbbbbbbb_y") == 20
    clock.now += 10
    assert wrong_keys(limits, ADDRESS, "one more") == 5


def test_keys_guessed_from_many_addresses_are_limited_by_their_prefix(limits: RateLimiter) -> None:
    passed = sum(wrong_keys(limits, f"198.51.100.{number}", f"wh_abcdefghijkl_{number}", 1) for number in range(200))
    assert passed == 20


def test_wrong_keys_do_not_count_against_other_requests(limits: RateLimiter) -> None:
    wrong_keys(limits, ADDRESS, "wh_abcdefghijkl_x")
    assert limits.check("abcdefghijkl", ADDRESS).remaining == 29
    assert limits.check(None, ADDRESS).remaining == 19
    limits.check_failures(ADDRESS)  # webhooks are counted separately


def test_a_refused_wrong_key_is_not_counted(limits: RateLimiter, clock: FakeClock) -> None:
    wrong_keys(limits, ADDRESS, "x", 500)
    clock.now += 2
    assert wrong_keys(limits, ADDRESS, "x") == 1


def test_a_prefix_reveals_nothing_of_a_secret() -> None:
    assert get_key_prefix("wh_abcdefghijkl_" + "s" * 40) == "wh_abcdefghijkl"
    assert get_key_prefix("secret-of-otterwiki") == get_key_prefix("secret-of-somebody") != get_key_prefix("another")
    assert "secret" not in get_key_prefix("secret-of-otterwiki")
    assert get_key_prefix("\ud800") != get_key_prefix("")
    assert get_key_prefix("eyJhbGciOi.a.b") != get_key_prefix("eyJhbGciOi.a.c"), (
        "tokens of one issuer have the same prefix"
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("", "no address", True),
        ("192.0.2.1\n", "testclient", True),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, same: bool) -> None:
    assert (get_network(one) == get_network(other)) is same


@given(st.ip_addresses(v=6), st.ip_addresses(v=6))
def test_ipv6_is_counted_by_the_first_64_bits(one: IPv6Address, other: IPv6Address) -> None:
    if one.ipv4_mapped or other.ipv4_mapped:
        return
    assert (get_network(str(one)) == get_network(str(other))) is (int(one) >> 64 == int(other) >> 64)


@given(st.text())
def test_any_text_is_accepted_as_an_address(text: str) -> None:
    assert RateLimiter(60, 60).check(None, text).remaining == 19


def test_memory_is_bounded_and_active_clients_are_not_forgotten(clock: FakeClock) -> None:
    limits = RateLimiter(60, 60, clock=clock)
    for number in range(50_000):
        clock.now += 1e-6
        limits.check(None, f"198.{number // 62_500}.{number // 250 % 250}.{number % 250}")
        if number < 20:
            limits.check(None, ADDRESS)
        elif number % 100 == 0:
            with pytest.raises(TooManyRequests):
                limits.check(None, ADDRESS)


def test_threads_together_get_no_more_than_one_alone(clock: FakeClock) -> None:
    limits = RateLimiter(4000, 60, clock=clock)
    passed: list[int] = []
    threads = [threading.Thread(target=lambda: passed.append(use_up(limits, "key"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(passed) == 1000
