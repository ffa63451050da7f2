// SPDX-License-Identifier: Apache-2.0
// A call that changes something runs once, however often, from wherever and on whichever shard it comes.
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"
#include "memory_call.hpp"
#include "rpc_server.hpp"

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpc/bulk.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>

#include <future>
#include <thread>

BOOST_AUTO_TEST_SUITE(rpc_duplicate_request_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;
using state = rpc::duplicate_request_cache::state;

namespace {

rpc::request_key key_of(std::uint32_t xid, std::string address = "192.0.2.1")
{
    rpc::request_key key;
    key.address = std::move(address);
    key.xid = xid;
    return key;
}

/// Two dispatchers' worth of streams on one shard, with one cache.
struct cached_streams {
    explicit cached_streams(const rpc::duplicate_request_options& options = {})
        : cache(1, options),
          calls(*plain.shard, &cache),
          server(std::make_unique<rpc::stream_server>(*plain.shard, plain.pool, calls))
    {
        calls.add(plain.program);
    }
    ~cached_streams()
    {
        plain.program.go.set();
        run_until_complete(*plain.shard, server->shut_down(plain.shard->clock().now()));
        server.reset();
    }
    net::unique_fd connect(const char* from)
    {
        int ends[2];
        BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        server->adopt(net::unique_fd(ends[0]), *net::endpoint::parse(from));
        return net::unique_fd(ends[1]);
    }
    std::string ask(const net::unique_fd& to, const bytes& message)
    {
        plain.send(to, framed(message));
        return to_hex(plain.receive(to));
    }
    virtual_clock clock;
    served_streams plain{{}, &clock};
    rpc::duplicate_request_cache cache;
    rpc::service_dispatcher calls;
    std::unique_ptr<rpc::stream_server> server;
};

std::unique_ptr<runtime> start_shards(std::size_t count)
{
    runtime_options options;
    options.shards = static_cast<unsigned>(count);
    options.reactor.policy = wait_policy::event;
    auto started = runtime::start(options);
    BOOST_REQUIRE(started);
    return std::move(*started);
}

std::string reply(const char* xid, const char* count)
{
    return "8000001c 000000" + std::string(xid) + " 00000001 00000000 00000000 00000000 00000000 000000" +
           count;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_repeat_gets_the_same_reply_and_does_not_run)
{
    cached_streams s;
    auto a = s.connect("192.0.2.1:1000");
    const auto message = call_of(0x11, 5, opaque(300));
    BOOST_TEST(s.ask(a, message) == reply("11", "01"));
    BOOST_TEST(s.ask(a, message) == reply("11", "01"));
    // after a reconnect from another port
    a.reset();
    auto b = s.connect("192.0.2.1:2000");
    BOOST_TEST(s.ask(b, message) == reply("11", "01"));
    BOOST_TEST(s.plain.program.count == 1);
    BOOST_TEST(s.cache.stats(0).remembered.value() == 1);
    BOOST_TEST(s.cache.stats(0).replayed.value() == 2);
    BOOST_TEST(s.cache.stats(0).bytes.value() == 28);
    metric_registry registry;
    const auto made = rpc::expose(registry, s.cache);
    std::map<std::string, double> seen;
    for (const auto& m : registry.collect()) {
        for (const auto& sample : m.samples)
            seen[m.family.name + (sample.labels.empty() ? "" : " " + sample.labels[0])] = sample.value;
    }
    BOOST_TEST(seen["verbena_duplicate_request_entries"] == 1);
    BOOST_TEST(seen["verbena_duplicate_request_bytes"] == 28);
    BOOST_TEST(seen["verbena_duplicate_requests_total remembered"] == 1);
    BOOST_TEST(seen["verbena_duplicate_requests_total replayed"] == 2);
    BOOST_TEST(seen["verbena_duplicate_requests_total evicted"] == 0);
}

namespace {

/// Counts, and returns so many bytes beside the count, of memory or of a file.
class counting_program final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return 0x20000002; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "counting"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return {}; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return true; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        c.results().u32(++count);
        for (int i = 0; i < 2; ++i) {
            const std::vector<std::byte> data(length, std::byte('a' + i));
            auto made = co_await rpc::copy_payload(c, data);
            BOOST_REQUIRE(made);
            c.results().note_payload(std::uint32_t(length));
            c.attach(std::move(*made));
            c.results().u32(7);
        }
        co_return rpc::outcome::success;
    }
    std::uint32_t count = 0;
    std::size_t length = 0;
};

/// Counts, and returns so many words; a repeat would do harm.
class wordy_program final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return 0x20000003; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "wordy"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return {}; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return true; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        c.keep_failure();
        ++count;
        const bool reserved = co_await c.reserve_results(4 * words);
        BOOST_REQUIRE(reserved);
        for (std::size_t i = 0; i < words; ++i)
            c.results().u32(7);
        co_return rpc::outcome::success;
    }
    std::uint32_t count = 0;
    std::size_t words = 0;
};

} // namespace

// The repeat may come over a transport that places data: they are told apart again.
BOOST_AUTO_TEST_CASE(a_reply_is_kept_with_its_data)
{
    memory_server s;
    counting_program counting;
    rpc::duplicate_request_cache cache(1);
    rpc::service_dispatcher calls(*s.shard, &cache);
    calls.add(counting);
    const auto ask = [&](std::uint32_t xid) {
        auto c = std::make_unique<memory_call>(s.pool, s.from);
        c->xid = xid;
        c->end(c->begin(0x20000002, 1, 1, nullptr));
        BOOST_REQUIRE(run_until_complete(*s.shard, calls.dispatch(*c)));
        (void)c->reply();
        BOOST_TEST(c->header_of_reply.success());
        return c;
    };
    counting.length = 1001; // with a pad
    const auto first = ask(1);
    const auto again = ask(1);
    BOOST_TEST(counting.count == 1u);
    BOOST_TEST(again->attached().size() == 2u);
    BOOST_TEST(again->attached()[1].size() == 1001u);
    BOOST_TEST(to_hex(first->whole_reply()) == to_hex(again->whole_reply()));
    BOOST_TEST(cache.stats(0).bytes.value() ==
               24 + 4 + 2 * (4 + 1004 + 4) + 2 * int(sizeof(xdr::payload_item)));
    // What is longer than is kept runs again, as ever.
    counting.length = 3000;
    (void)ask(2);
    (void)ask(2);
    BOOST_TEST(counting.count == 3u);
}

// Nor does one whose reply is longer than is kept: a repeat hears that there is no answer, however little is kept.
BOOST_AUTO_TEST_CASE(a_change_with_a_long_reply_does_not_run_again)
{
    for (const std::size_t most : {0, 424, 500}) {
        memory_server s;
        wordy_program wordy;
        rpc::duplicate_request_options options;
        options.max_reply = most;
        rpc::duplicate_request_cache cache(1, options);
        rpc::service_dispatcher calls(*s.shard, &cache);
        calls.add(wordy);
        const auto succeeds = [&](std::uint32_t xid) {
            memory_call c(s.pool, s.from);
            c.xid = xid;
            c.reserves = 1;
            c.end(c.begin(0x20000003, 1, 1, nullptr));
            BOOST_REQUIRE(run_until_complete(*s.shard, calls.dispatch(c)));
            (void)c.reply();
            return c.header_of_reply.success();
        };
        wordy.words = 100; // with the header 424
        BOOST_TEST(succeeds(1));
        BOOST_TEST(succeeds(1));
        BOOST_TEST(wordy.count == 1u);
        wordy.words = 115;
        BOOST_TEST(succeeds(2));
        BOOST_TEST(succeeds(2) == (most == 500));
        wordy.words = 1000;
        BOOST_TEST(succeeds(3));
        BOOST_TEST(!succeeds(3));
        BOOST_TEST(wordy.count == 3u);
    }
}

// What threw may have done a part; nobody knows, so a repeat is run as if the first had never come.
BOOST_AUTO_TEST_CASE(a_call_that_threw_is_not_remembered)
{
    cached_streams s;
    const test::log_at quiet(log_level::off);
    auto a = s.connect("192.0.2.1:1000");
    s.plain.program.throw_in_count = true;
    BOOST_TEST(s.ask(a, call_of(0x11, 5)) ==
               "80000018 00000011 00000001 00000000 00000000 00000000 00000005");
    s.plain.program.throw_in_count = false;
    BOOST_TEST(s.ask(a, call_of(0x11, 5)) == reply("11", "02"));
    BOOST_TEST(s.ask(a, call_of(0x11, 5)) == reply("11", "02"));
    BOOST_TEST(s.cache.stats(0).entries.value() == 1);
}

BOOST_AUTO_TEST_CASE(whatever_differs_is_another_call)
{
    cached_streams s;
    auto a = s.connect("192.0.2.1:1000");
    auto b = s.connect("192.0.2.2:1000");
    BOOST_TEST(s.ask(a, call_of(0x11, 5, opaque(300))) == reply("11", "01"));
    BOOST_TEST(s.ask(a, call_of(0x12, 5, opaque(300))) == reply("12", "02"));      // the XID
    BOOST_TEST(s.ask(b, call_of(0x11, 5, opaque(300))) == reply("11", "03"));      // the peer
    BOOST_TEST(s.ask(a, call_of(0x11, 5, opaque(300, 'v'))) == reply("11", "04")); // the arguments
    BOOST_TEST(s.ask(a, call_of(0x11, 5, opaque(304))) == reply("11", "05"));      // their length
    BOOST_TEST(s.ask(a, call_of(0x11, 5, opaque(300), 2)) == reply("11", "06"));   // the version
    const auto as_user =
        from_hex("00000011 00000000 00000002 20000001 00000003 00000005 00000001 00000014 00000000"
                 "00000000 000003e8 00000000 00000000 00000000 00000000");
    auto with_arguments = as_user;
    append(with_arguments, opaque(300));
    BOOST_TEST(s.ask(a, with_arguments) == reply("11", "07")); // the user
    BOOST_TEST(s.plain.program.count == 7);
}

// Two long names are longer than the beginning that was looked at once.
BOOST_AUTO_TEST_CASE(arguments_that_differ_in_their_end_are_another_call)
{
    cached_streams s;
    auto a = s.connect("192.0.2.1:1000");
    for (const std::size_t size : {1000, 8188}) {
        auto first = call_of(0x11, 5, opaque(size));
        auto second = first;
        second.back() = std::byte(1);
        const int before = s.plain.program.count;
        s.ask(a, first);
        s.ask(a, second);
        s.ask(a, first);
        s.ask(a, second);
        BOOST_TEST(s.plain.program.count == before + 2);
    }
}

// The checksum is made of several sums and a rest.
BOOST_AUTO_TEST_CASE(each_byte_of_the_arguments_counts_and_so_does_its_place)
{
    cached_streams s;
    auto a = s.connect("192.0.2.1:1000");
    const auto first = call_of(0x11, 5, opaque(76));
    const std::size_t begins = first.size() - 76;
    s.ask(a, first);
    for (std::size_t i = begins; i < first.size(); ++i) {
        auto other = first;
        other[i] ^= std::byte(1);
        const int before = s.plain.program.count;
        s.ask(a, other);
        BOOST_TEST(s.plain.program.count == before + 1, "byte " << i - begins);
    }
}

BOOST_AUTO_TEST_CASE(calls_that_may_run_again_do_so_when_the_first_run_has_ended)
{
    cached_streams s;
    s.plain.program.wait_in_count = true;
    auto a = s.connect("192.0.2.1:1000");
    auto b = s.connect("192.0.2.1:1001");
    const auto message = call_of(0x11, 13, opaque(300));
    BOOST_TEST(s.ask(a, message) == "");
    BOOST_TEST(s.ask(b, message) == "");
    BOOST_TEST(s.ask(b, message) == "");
    BOOST_TEST(s.ask(b, call_of(0x12, 13, opaque(300))) == ""); // another call waits for none of them
    BOOST_TEST(s.plain.program.running == 2);
    s.plain.program.go.set();
    s.plain.turns();
    BOOST_TEST(to_hex(s.plain.receive(a)).starts_with("8000001c 00000011"));
    BOOST_TEST(s.plain.receive(b).size() == 3 * 32);
    BOOST_TEST(s.plain.program.count == 4);
    BOOST_TEST(s.plain.program.most_running == 2);
    BOOST_TEST(s.ask(a, message) == reply("11", "05")); // nothing is remembered
    BOOST_TEST(s.cache.stats(0).entries.value() == 0);
    BOOST_TEST(s.cache.in_turn_stats(0).entries.value() == 0);
    BOOST_TEST(s.cache.in_turn_stats(0).waited.value() == 2);
}

BOOST_AUTO_TEST_CASE(calls_kept_apart_have_places_of_their_own)
{
    rpc::duplicate_request_options options;
    options.max_entries = 2;
    options.max_in_turn = 2;
    cached_streams s(options);
    auto a = s.connect("192.0.2.1:1000");
    for (std::uint32_t xid = 1; xid <= 2; ++xid)
        s.ask(a, call_of(xid, 5));
    s.plain.program.wait_in_count = true;
    for (std::uint32_t xid = 1; xid <= 3; ++xid)
        BOOST_TEST(s.ask(a, call_of(xid, 13)) == "");
    BOOST_TEST(s.plain.program.running == 3);
    BOOST_TEST(s.cache.in_turn_stats(0).uncached.value() == 1);
    BOOST_TEST(s.cache.stats(0).evicted.value() == 0);
    BOOST_TEST(s.ask(a, call_of(1, 5)) == reply("01", "01"));
    s.plain.program.go.set();
    BOOST_TEST(s.plain.receive(a).size() == 3 * 32);
}

// One host's changes take the half that nobody owns and no place of those whom another part serves.
BOOST_AUTO_TEST_CASE(half_of_the_places_serve_whoever_needs_them)
{
    virtual_clock clock;
    reactor_options of_shard;
    of_shard.clock = &clock;
    const auto made = reactor::create(of_shard);
    BOOST_REQUIRE(made);
    reactor& here = **made;
    rpc::duplicate_request_options options;
    options.max_entries = 16;
    seeded_random numbers(1), again(1);
    rpc::duplicate_request_cache cache(2, options, numbers);
    rpc::duplicate_request_cache likewise(2, {}, again); // to find out who is served by which part
    const auto answer = from_hex("01020304");
    const auto ask_of = [&](rpc::duplicate_request_cache& c, rpc::request_key key) -> task<state> {
        rpc::duplicate_request_cache::visit v(c, here, std::move(key));
        const state s = co_await v.begin();
        if (s == state::fresh)
            v.remember(answer);
        co_return s;
    };
    const auto ask = [&](rpc::request_key key) { return ask_of(cache, std::move(key)); };
    std::string busy = "192.0.2.1";
    (void)run_until_complete(here, ask(key_of(0, busy)));
    const std::size_t part = cache.stats(0).entries.value() == 1 ? 0 : 1;
    std::string other;
    for (int i = 2; other.empty(); ++i) {
        const std::string address = "192.0.2." + std::to_string(i);
        const auto before = likewise.stats(part).entries.value();
        (void)run_until_complete(here, ask_of(likewise, key_of(0, address)));
        if (likewise.stats(part).entries.value() == before)
            other = address;
    }
    for (std::uint32_t xid = 1; xid < 20; ++xid)
        BOOST_TEST((run_until_complete(here, ask(key_of(xid, busy))) == state::fresh));
    BOOST_TEST(cache.stats(part).entries.value() == 12);
    BOOST_TEST(cache.stats(part).evicted.value() == 8u);
    for (std::uint32_t xid = 0; xid < 4; ++xid)
        BOOST_TEST((run_until_complete(here, ask(key_of(xid, other))) == state::fresh));
    BOOST_TEST(cache.stats(1 - part).entries.value() == 4);
    BOOST_TEST(cache.stats(1 - part).evicted.value() == 0u);
    // When the busy one's are old, the other gets that half, though the busy one says nothing any more.
    clock.advance(121s);
    here.turn();
    for (std::uint32_t xid = 4; xid < 14; ++xid)
        BOOST_TEST((run_until_complete(here, ask(key_of(xid, other))) == state::fresh));
    BOOST_TEST(cache.stats(1 - part).evicted.value() == 0u);
    BOOST_TEST(cache.stats(part).entries.value() == 4);
    BOOST_TEST(cache.stats(part).evicted.value() == 8u);
}

BOOST_AUTO_TEST_CASE(memory_decides_how_many_places_there_are)
{
    const auto options = rpc::duplicate_request_options::within(std::size_t(128) << 20);
    BOOST_TEST(options.max_entries > 240'000u); // 2,000 changes a second for two minutes
    BOOST_TEST(options.max_entries < 500'000u);
    const auto most = rpc::duplicate_request_options::within(std::size_t(1) << 40);
    BOOST_TEST(most.max_entries == std::size_t(1) << 21);
}

// Over a stream a large call lies in one piece or in two, as it fell into the receive buffers.
BOOST_AUTO_TEST_CASE(a_large_repeat_is_recognised_wherever_it_lies)
{
    cached_streams s;
    const auto large = framed(call_of(0x11, 5, opaque(40000)));
    for (const std::size_t before : {0, 30000, 50000, 60000}) {
        auto a = s.connect("192.0.2.1:1000");
        bytes all = framed(call_of(0x77, 0, opaque(before)));
        const std::size_t reply_before = 28;
        append(all, large);
        s.plain.send(a, all);
        const bytes got = s.plain.receive(a);
        BOOST_REQUIRE(got.size() == reply_before + 32);
        BOOST_TEST(to_hex(std::span(got).subspan(reply_before)) == reply("11", "01"));
    }
    BOOST_TEST(s.plain.program.count == 1);
    BOOST_TEST(s.cache.stats(0).replayed.value() == 3);
}

// The bytes of a Read chunk are with the peer until permissions were checked: only their length counts.
BOOST_AUTO_TEST_CASE(of_a_read_chunk_only_the_length_counts)
{
    memory_budget budget(1 << 20);
    buffer_pool pool(budget, nullptr);
    const rpc::peer from{"192.0.2.1", "192.0.2.1:700", "iwarp", 700};
    const auto key = [&](std::uint32_t file, std::uint32_t length, char fill, bool pad) {
        memory_call c(pool, from);
        xdr::encoder out = c.begin(0x20000001, 3, 5, nullptr);
        out.u32(file);
        out.note_payload(length);
        c.end(out, std::vector<std::byte>(pad ? xdr::padded(length) : length, std::byte(fill)));
        BOOST_REQUIRE((c.decode_header() == rpc::call_verdict::good));
        rpc::request_key made = rpc::request_key::of(c);
        BOOST_TEST(c.pulls == 0);
        return made;
    };
    const auto first = key(1, 30001, 'a', false);
    BOOST_TEST((key(1, 30001, 'a', true) == first)); // the pad may be in the chunk or not (RFC 8166 3.4.5.2)
    BOOST_TEST((key(1, 30001, 'b', false) == first));
    BOOST_TEST(!(key(1, 30005, 'a', false) == first));
    BOOST_TEST(!(key(2, 30001, 'a', false) == first));
}

BOOST_AUTO_TEST_CASE(idempotent_calls_run_each_time)
{
    cached_streams s;
    auto a = s.connect("192.0.2.1:1000");
    s.ask(a, call_of(1, 0));
    s.ask(a, call_of(1, 0));
    BOOST_TEST(s.plain.program.served == 2);
    BOOST_TEST(s.cache.stats(0).entries.value() == 0);
}

BOOST_AUTO_TEST_CASE(a_repeat_of_a_call_in_progress_waits_for_it)
{
    cached_streams s;
    s.plain.program.wait_in_count = true;
    auto a = s.connect("192.0.2.1:1000");
    auto b = s.connect("192.0.2.1:1001");
    const auto message = call_of(0x11, 5);
    BOOST_TEST(s.ask(a, message) == "");
    a.reset(); // the client lost its connection
    s.plain.turns();
    for (int i = 0; i < 6; ++i)
        BOOST_TEST(s.ask(b, message) == "");
    BOOST_TEST(s.cache.stats(0).dropped.value() == 2); // the fifth and sixth: at most four wait
    s.plain.program.go.set();
    const auto all = to_hex(s.plain.receive(b));
    BOOST_TEST(all == reply("11", "01") + ' ' + reply("11", "01") + ' ' + reply("11", "01") + ' ' +
                          reply("11", "01"));
    BOOST_TEST(s.plain.program.count == 1);
}

BOOST_AUTO_TEST_CASE(replies_are_kept_for_a_time)
{
    cached_streams s;
    auto a = s.connect("192.0.2.1:1000");
    s.ask(a, call_of(0x11, 5));
    s.clock.advance(119s);
    BOOST_TEST(s.ask(a, call_of(0x11, 5)) == reply("11", "01"));
    s.clock.advance(2s);
    BOOST_TEST(s.ask(a, call_of(0x11, 5)) == reply("11", "02"));
}

BOOST_AUTO_TEST_CASE(entries_and_bytes_are_bounded)
{
    rpc::duplicate_request_options options;
    options.max_entries = 4;
    options.max_bytes = 3 * rpc::duplicate_request_options::usual_reply;
    cached_streams s(options);
    auto a = s.connect("192.0.2.1:1000");
    for (std::uint32_t xid = 1; xid <= 10; ++xid) {
        s.ask(a, call_of(xid, 5));
        BOOST_TEST(s.cache.stats(0).entries.value() <= 4);
        BOOST_TEST(s.cache.stats(0).bytes.value() <= 84);
        BOOST_TEST(s.cache.stats(0).room.value() <= std::int64_t(options.max_bytes));
    }
    BOOST_TEST(s.cache.stats(0).evicted.value() == 7);
    BOOST_TEST(s.ask(a, call_of(10, 5)) == reply("0a", "0a")); // the newest are there
    BOOST_TEST(s.ask(a, call_of(8, 5)) == reply("08", "08"));
    BOOST_TEST(s.ask(a, call_of(7, 5)) == reply("07", "0b")); // the oldest aren't
}

BOOST_AUTO_TEST_CASE(a_full_table_of_calls_in_progress_lets_others_run)
{
    rpc::duplicate_request_options options;
    options.max_entries = 2;
    cached_streams s(options);
    s.plain.program.wait_in_count = true;
    auto a = s.connect("192.0.2.1:1000");
    for (std::uint32_t xid = 1; xid <= 3; ++xid)
        s.ask(a, call_of(xid, 5));
    BOOST_TEST(s.plain.program.count == 3);
    BOOST_TEST(s.cache.stats(0).uncached.value() == 1);
    s.plain.program.go.set();
    BOOST_TEST(s.plain.receive(a).size() == 3 * 32);
}

// Several shards look at one peer's entries at once: ThreadSanitizer watches this one.
struct outcome {
    int fresh = 0, answered = 0, wrong = 0;
};

BOOST_AUTO_TEST_CASE(visits_from_all_shards)
{
    const auto running = start_shards(3);
    runtime& shards = *running;
    seeded_random numbers(1);
    rpc::duplicate_request_cache cache(shards.size(), {}, numbers);
    const auto answer = from_hex("01020304");
    constexpr int peers = 20;

    const auto visit_all = [&](shard& here) -> task<outcome> {
        outcome o;
        for (int i = 0; i < peers; ++i) {
            auto key = key_of(7, "192.0.2." + std::to_string(i));
            rpc::duplicate_request_cache::visit v(cache, here.reactor(), std::move(key));
            switch (co_await v.begin()) {
            case state::fresh:
                ++o.fresh;
                v.remember(answer);
                break;
            case state::answered:
                ++o.answered;
                o.wrong += to_hex(v.reply()) != "01020304";
                break;
            default: ++o.wrong;
            }
        }
        co_return o;
    };
    // At the same time from all shards, then once more.
    std::vector<std::thread> threads;
    std::vector<outcome> outcomes(3);
    for (std::size_t i = 0; i < 3; ++i)
        threads.emplace_back([&, i] { outcomes[i] = shards.run(i, visit_all); });
    for (auto& t : threads)
        t.join();
    BOOST_TEST(outcomes[0].fresh + outcomes[1].fresh + outcomes[2].fresh == peers);
    BOOST_TEST(outcomes[0].answered + outcomes[1].answered + outcomes[2].answered == 2 * peers);
    BOOST_TEST(outcomes[0].wrong + outcomes[1].wrong + outcomes[2].wrong == 0);
    BOOST_TEST(shards.run(1, visit_all).answered == peers);
    std::uint64_t remembered = 0;
    for (std::size_t i = 0; i < 3; ++i) {
        BOOST_TEST(cache.stats(i).remembered.value() > 0u); // the peers spread over the parts
        remembered += cache.stats(i).remembered.value();
    }
    BOOST_TEST(remembered == peers);
    shards.stop();
}

// A repeat on another shard waits for the call in progress, and goes on there.
BOOST_AUTO_TEST_CASE(a_repeat_on_another_shard_waits)
{
    const auto running = start_shards(2);
    runtime& shards = *running;
    rpc::duplicate_request_cache cache(shards.size());
    for (std::uint32_t xid = 1; xid <= 50; ++xid) {
        std::promise<void> begun;
        const auto first = [&](shard& here) -> task<state> {
            rpc::duplicate_request_cache::visit v(cache, here.reactor(), key_of(xid));
            const state s = co_await v.begin();
            begun.set_value();
            const auto waits = [&cache] {
                return cache.stats(0).waited.value() + cache.stats(1).waited.value();
            };
            while (waits() != xid)
                co_await sleep_for(100us);
            v.remember(from_hex("01020304"));
            co_return s;
        };
        const auto second = [&](shard& here) -> task<bool> {
            rpc::duplicate_request_cache::visit v(cache, here.reactor(), key_of(xid));
            const state s = co_await v.begin();
            const bool stays = reactor::current() == &here.reactor();
            co_return stays&& s == state::answered&& to_hex(v.reply()) == "01020304";
        };
        state seen = state::dropped;
        std::thread other([&] { seen = shards.run(xid % 2, first); });
        begun.get_future().wait();
        BOOST_TEST(shards.run(1 - xid % 2, second));
        other.join();
        BOOST_TEST((seen == state::fresh));
    }
    shards.stop();
}

// A visit that ends without a word (the call was dropped or failed) sets the next one free to run.
BOOST_AUTO_TEST_CASE(forgotten_calls_run_again)
{
    const auto running = start_shards(2);
    runtime& shards = *running;
    rpc::duplicate_request_cache cache(shards.size());
    const auto visit_once = [&](shard& here) -> task<state> {
        rpc::duplicate_request_cache::visit v(cache, here.reactor(), key_of(1));
        co_return co_await v.begin();
    };
    for (int i = 0; i < 6; ++i)
        BOOST_TEST((shards.run(static_cast<std::size_t>(i % 2), visit_once) == state::fresh));
    shards.stop();
}

// A first run that fails says nothing of the call, so a repeat that waits for it is not lost with it.
BOOST_AUTO_TEST_CASE(a_repeat_that_waits_for_a_run_that_fails_runs)
{
    virtual_clock clock;
    reactor_options of_shard;
    of_shard.clock = &clock;
    const auto made = reactor::create(of_shard);
    BOOST_REQUIRE(made);
    reactor& here = **made;
    rpc::duplicate_request_cache cache(1);
    struct caller {
        std::optional<state> seen;
        event go;
        bool keeps = false;
    };
    std::array<caller, 4> callers;
    scope work(here);
    const auto run = [&](caller& c) -> task<void> {
        rpc::duplicate_request_cache::visit v(cache, here, key_of(1));
        c.seen = co_await v.begin();
        (void)co_await c.go.wait();
        if (c.keeps)
            v.remember(from_hex("01020304"));
    };
    const auto turns = [&] {
        for (int i = 0; i < 5; ++i)
            here.turn();
    };
    for (caller& c : callers)
        work.spawn([&] { return run(c); });
    turns();
    BOOST_TEST((callers[0].seen == state::fresh));
    BOOST_TEST(!callers[1].seen.has_value());
    callers[0].go.set();
    turns();
    BOOST_TEST((callers[1].seen == state::fresh));
    BOOST_TEST(!callers[2].seen.has_value());
    BOOST_TEST(!callers[3].seen.has_value());
    callers[1].keeps = true;
    callers[1].go.set();
    turns();
    BOOST_TEST((callers[2].seen == state::answered));
    BOOST_TEST((callers[3].seen == state::answered));
    callers[2].go.set();
    callers[3].go.set();
    turns();
    BOOST_TEST(cache.stats(0).dropped.value() == 0u);
    BOOST_TEST(cache.stats(0).entries.value() == 1);
    const auto end = [](scope& s) -> task<void> { co_await s.join(); };
    run_until_complete(here, end(work));
}

BOOST_AUTO_TEST_CASE(a_run_that_fails_passes_the_call_to_another_shard)
{
    const auto running = start_shards(2);
    runtime& shards = *running;
    rpc::duplicate_request_cache cache(shards.size());
    const auto waits = [&cache] { return cache.stats(0).waited.value() + cache.stats(1).waited.value(); };
    for (std::uint32_t xid = 1; xid <= 50; ++xid) {
        std::promise<void> begun;
        const auto first = [&](shard& here) -> task<state> {
            rpc::duplicate_request_cache::visit v(cache, here.reactor(), key_of(xid));
            const state s = co_await v.begin();
            begun.set_value();
            while (waits() != 2 * xid - 1)
                co_await sleep_for(100us);
            co_return s;
        };
        // The second runs it on its own shard, while a third waits.
        const auto second = [&](shard& here) -> task<bool> {
            rpc::duplicate_request_cache::visit v(cache, here.reactor(), key_of(xid));
            const state s = co_await v.begin();
            const bool stays = reactor::current() == &here.reactor();
            if (s != state::fresh)
                co_return false;
            while (waits() != 2 * xid)
                co_await sleep_for(100us);
            v.remember(from_hex("01020304"));
            co_return stays;
        };
        const auto third = [&](shard& here) -> task<state> {
            rpc::duplicate_request_cache::visit v(cache, here.reactor(), key_of(xid));
            const state s = co_await v.begin();
            co_return s;
        };
        state seen = state::dropped;
        bool ran = false;
        std::thread other([&] { seen = shards.run(xid % 2, first); });
        begun.get_future().wait();
        std::thread repeat([&] { ran = shards.run(1 - xid % 2, second); });
        while (waits() < 2 * xid - 1)
            std::this_thread::sleep_for(100us);
        other.join(); // its visit ended
        BOOST_TEST((shards.run(xid % 2, third) == state::answered));
        repeat.join();
        BOOST_TEST((seen == state::fresh));
        BOOST_TEST(ran);
        if (!ran)
            break;
    }
    shards.stop();
}

// Hosts that found addresses of which one part has all the calls, whose lock they could hold, have found nothing for
// another process.
BOOST_AUTO_TEST_CASE(which_part_keeps_a_hosts_calls_cannot_be_foreseen)
{
    const auto made = reactor::create({});
    BOOST_REQUIRE(made);
    reactor& here = **made;
    constexpr std::size_t hosts = 64;
    const auto ask = [&](rpc::duplicate_request_cache& cache, std::size_t host) -> task<void> {
        rpc::duplicate_request_cache::visit v(cache, here, key_of(1, "192.0.2." + std::to_string(host)));
        (void)co_await v.begin();
        v.remember(from_hex("01020304"));
    };
    const auto parts_of = [&](random_source& numbers) {
        rpc::duplicate_request_cache cache(2, {}, numbers);
        std::vector<bool> first;
        for (std::size_t host = 0; host < hosts; ++host) {
            const auto before = cache.stats(0).entries.value();
            run_until_complete(here, ask(cache, host));
            first.push_back(cache.stats(0).entries.value() != before);
        }
        return first;
    };
    seeded_random one(1), same(1), other(2);
    const auto parts = parts_of(one);
    BOOST_TEST((parts_of(same) == parts));
    BOOST_TEST((parts_of(other) != parts));
    BOOST_TEST((parts_of(system_random()) != parts));
}

// Whoever finds calls that share a bucket, and so make a look at one slow, has found nothing for another process.
BOOST_AUTO_TEST_CASE(where_a_call_is_kept_cannot_be_foreseen)
{
    const auto made = reactor::create({});
    BOOST_REQUIRE(made);
    reactor& here = **made;
    rpc::duplicate_request_options options;
    options.max_entries = 256;
    const auto answer = from_hex("01020304");
    const auto look = [&](rpc::duplicate_request_cache& cache, const rpc::request_key& key,
                          bool keeps) -> task<std::uint64_t> {
        const std::uint64_t before = cache.stats(0).passed.value();
        rpc::duplicate_request_cache::visit v(cache, here, key);
        (void)co_await v.begin();
        if (keeps)
            v.remember(answer);
        co_return cache.stats(0).passed.value() - before;
    };
    rpc::duplicate_request_cache one(1, options);
    rpc::duplicate_request_cache other(1, options);
    (void)run_until_complete(here, look(one, key_of(0), true));
    (void)run_until_complete(here, look(other, key_of(0), true));
    int same = 0;
    int found = 0;
    for (std::uint32_t xid = 1; found < 20; ++xid) {
        BOOST_REQUIRE(xid < 100'000u);
        if (run_until_complete(here, look(one, key_of(xid), false)) == 0)
            continue;
        ++found;
        same += run_until_complete(here, look(other, key_of(xid), false)) != 0;
    }
    BOOST_TEST(same < 10);

    // Nor do those that differ in one thing only, as the user, or in some bits of the checksum.
    for (std::uint32_t i = 1; i <= 100; ++i) {
        rpc::request_key of_user = key_of(0);
        of_user.user = i;
        (void)run_until_complete(here, look(one, of_user, true));
        rpc::request_key of_checksum = key_of(0);
        of_checksum.checksum = std::uint64_t(i) << 44;
        (void)run_until_complete(here, look(other, of_checksum, true));
    }
    BOOST_TEST(one.stats(0).passed.value() < 200u); // 20 and some
    BOOST_TEST(other.stats(0).passed.value() < 200u);
}

BOOST_AUTO_TEST_SUITE_END()
