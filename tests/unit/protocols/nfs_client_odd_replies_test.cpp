// SPDX-License-Identifier: Apache-2.0
// What the client makes of calls that are put off, and of READs that contradict themselves (RFC 1813 2.6, 3.3.6).
#include <boost/test/unit_test.hpp>

#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/client/v3/client.hpp>
#include <verbena/protocols/nfs/client/v3/file.hpp>

#include <chrono>
#include <functional>
#include <memory>

BOOST_AUTO_TEST_SUITE(nfs_client_odd_replies_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t jukebox = 10008;

// Answers each call with what `results` writes behind the header of an accepted reply.
class scripted final : public rpc::client_transport {
public:
    explicit scripted(buffer_pool& b) : buffers_(b) {}
    task<result<void>> connect() override { co_return result<void>(); }
    task<result<rpc::reply>> call(rpc::request&) override
    {
        ++calls;
        lease memory = co_await buffers_.acquire(buffer_pool::min_size);
        xdr::encoder e(memory.bytes());
        for (const std::uint32_t word : {0U, 1U, 0U, 0U, 0U, 0U})
            e.u32(word);
        results(e);
        const std::span<const std::byte> message(memory.data(), e.size());
        rpc::reply r(std::move(memory), message, {}, false);
        if (auto decoded = r.decode_header(); !decoded)
            co_return decoded.error();
        co_return std::move(r);
    }
    task<void> close() override { co_return; }
    task<lease> acquire(std::size_t size) override { co_return co_await buffers_.acquire(size); }
    std::string_view name() const noexcept override { return "scripted"; }
    std::uint64_t connections() const noexcept override { return 1; }
    bool answered() const noexcept override { return calls != 0; }
    std::function<void(xdr::encoder&)> results;
    unsigned calls = 0;

private:
    buffer_pool& buffers_;
};

struct ear final : nfs::put_off_watch {
    explicit ear(virtual_clock& c) : clock(c) {}
    void on_put_off(const error& cause) noexcept override
    {
        ++put_off;
        at = clock.now();
        why = cause;
    }
    void on_service() noexcept override { ++service; }
    virtual_clock& clock;
    unsigned put_off = 0;
    unsigned service = 0;
    time_point at;
    error why;
};

struct fixture {
    fixture()
    {
        reactor_options options;
        options.clock = &clock;
        shard = std::move(*reactor::create(options));
        buffers = std::make_unique<buffer_pool>(budget, shard.get());
        server = std::make_unique<scripted>(*buffers);
        client = std::make_unique<nfs::client>(*server, nfs::identity());
        server->results = [this](xdr::encoder& e) {
            e.u32(status);
            if (status == 0) {
                for (int i = 0; i < 21; ++i) // fattr3
                    e.u32(1);
            }
        };
    }
    result<void> ask()
    {
        auto job = [this]() -> task<result<void>> {
            nfs::v3::nfs_fh3 file;
            auto got = co_await client->getattr(file);
            if (!got)
                co_return got.error();
            co_return result<void>();
        };
        began = clock.now();
        return run_until_complete(*shard, job());
    }
    duration took() const { return clock.now() - began; }

    virtual_clock clock;
    memory_budget budget{64 << 20};
    std::unique_ptr<reactor> shard;
    std::unique_ptr<buffer_pool> buffers;
    std::unique_ptr<scripted> server;
    std::unique_ptr<nfs::client> client;
    std::uint32_t status = jukebox;
    time_point began;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_call_that_is_put_off_ends_with_the_patience, fixture)
{
    for (const duration patience : {duration(60s), duration(1s), duration(2500ms)}) {
        client = std::make_unique<nfs::client>(*server, nfs::identity());
        if (patience != 60s)
            client->have_patience(patience, nullptr);
        const auto answered = ask();
        BOOST_REQUIRE(!answered);
        BOOST_TEST((answered.error() == make_error_code(nfs::v3::nfsstat3::jukebox)));
        BOOST_TEST((took() == patience));
    }
}

BOOST_FIXTURE_TEST_CASE(after_one_in_vain_others_are_not_asked_again_until_the_server_serves, fixture)
{
    client->have_patience(10s, nullptr);
    BOOST_TEST(!ask());
    const unsigned before = server->calls;
    BOOST_TEST(!ask());
    BOOST_TEST((took() == 0s));
    BOOST_TEST(server->calls == before + 1);
    status = 2; // a refusal is service too
    BOOST_TEST(!ask());
    status = jukebox;
    BOOST_TEST(!ask());
    BOOST_TEST((took() == 10s));
}

BOOST_FIXTURE_TEST_CASE(a_patience_that_is_spent_bounds_what_all_calls_wait_in_vain, fixture)
{
    ear hears(clock);
    client->have_patience(10s, &hears);
    client->spend_patience();
    duration in_vain = duration::zero();
    for (int i = 0; i < 100; ++i) {
        status = jukebox;
        BOOST_TEST(!ask());
        in_vain += took();
        BOOST_TEST((took() == 10s || in_vain > 10s));
        status = 2; // others are served meanwhile
        BOOST_TEST(!ask());
    }
    BOOST_TEST((in_vain > 15s));
    BOOST_TEST((in_vain <= 20s));
    BOOST_TEST(hears.put_off == 2u); // a shorter wait is nobody's matter
    // One that is served after a short wait is served.
    client = std::make_unique<nfs::client>(*server, nfs::identity());
    client->have_patience(10s, nullptr);
    client->spend_patience();
    status = jukebox;
    BOOST_TEST(!ask());
    status = 2;
    BOOST_TEST(!ask());
    server->results = [this](xdr::encoder& e) { e.u32(clock.now() - began < 4s ? jukebox : 2U); };
    const auto late = ask();
    BOOST_TEST((late.error() == make_error_code(nfs::v3::nfsstat3::noent)));
}

BOOST_FIXTURE_TEST_CASE(whoever_watches_hears_of_it_once_and_of_its_end, fixture)
{
    ear hears(clock);
    client->have_patience(60s, &hears);
    BOOST_TEST(!ask());
    BOOST_TEST(hears.put_off == 1u);
    BOOST_TEST((hears.at >= began + nfs::patience::told_after));
    BOOST_TEST((hears.at < began + 2 * nfs::patience::told_after));
    BOOST_TEST(std::string(hears.why.context()) == "GETATTR");
    BOOST_TEST(!ask());
    BOOST_TEST(hears.put_off == 1u);
    BOOST_TEST(hears.service == 0u);
    status = 0;
    BOOST_TEST(bool(ask()));
    BOOST_TEST(bool(ask()));
    BOOST_TEST(hears.service == 1u);
    // Half of a short patience is long enough.
    client->have_patience(4s, &hears);
    status = jukebox;
    BOOST_TEST(!ask());
    BOOST_TEST(hears.put_off == 2u);
    BOOST_TEST((hears.at < began + 4s));
}

BOOST_FIXTURE_TEST_CASE(a_short_wait_is_nobodys_matter, fixture)
{
    ear hears(clock);
    client->have_patience(60s, &hears);
    server->results = [this](xdr::encoder& e) { e.u32(clock.now() - began < 4s ? jukebox : 2U); };
    BOOST_TEST(!ask());
    BOOST_TEST((took() >= 4s));
    BOOST_TEST(hears.put_off == 0u);
    BOOST_TEST(hears.service == 0u);
}

namespace {

struct told {
    std::uint64_t size; // by the attributes
    std::uint32_t count;
    bool eof;
};

// One READ of 100 octets at 1000 of a file that had `size` octets when it was opened; each reply but the last is used once.
struct read_fixture : fixture {
    result<nfs::read_result> read(std::uint64_t size, std::vector<told> replies)
    {
        std::size_t next = 0;
        server->calls = 0;
        server->results = [&](xdr::encoder& e) {
            const told& now = replies[std::min(next++, replies.size() - 1)];
            e.u32(0);
            e.u32(1);
            for (const std::uint32_t word : {1U, 0644U, 1U, 0U, 0U})
                e.u32(word);
            for (const std::uint64_t word :
                 {now.size, now.size, std::uint64_t(0), std::uint64_t(1), std::uint64_t(7)})
                e.u64(word);
            for (int i = 0; i < 6; ++i)
                e.u32(0);
            e.u32(now.count);
            e.u32(now.eof ? 1 : 0);
            e.string(std::string(now.count, 'x'));
        };
        auto job = [&]() -> task<result<nfs::read_result>> {
            nfs::node n;
            n.attributes.size = size;
            nfs::file f(*client, n);
            co_return co_await f.read(1000, 100);
        };
        return run_until_complete(*shard, job());
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(reads_that_agree_with_the_size, read_fixture)
{
    const auto middle = read(5000, {{5000, 100, false}});
    BOOST_REQUIRE(middle);
    BOOST_TEST((middle->data.size() == 100 && !middle->eof));
    const auto last = read(1050, {{1050, 50, true}});
    BOOST_REQUIRE(last);
    BOOST_TEST((last->data.size() == 50 && last->eof));
    const auto behind = read(1000, {{1000, 0, true}});
    BOOST_REQUIRE(behind);
    BOOST_TEST((behind->data.empty() && behind->eof));
    // It shrank, and it grew.
    BOOST_TEST(bool(read(5000, {{10, 0, true}})));
    BOOST_TEST(bool(read(1000, {{1100, 100, true}})));
}

BOOST_FIXTURE_TEST_CASE(attributes_may_be_younger_than_the_data, read_fixture)
{
    // It grew behind what was read: the end is told by the next READ.
    const auto grown = read(1050, {{2000, 50, true}});
    BOOST_REQUIRE(grown);
    BOOST_TEST(!grown->eof);
    // It grew right at its end.
    const auto at_end = read(1000, {{1010, 0, true}, {1010, 10, true}});
    BOOST_REQUIRE(at_end);
    BOOST_TEST((at_end->data.size() == 10 && at_end->eof));
    // It was cut off behind the READ.
    BOOST_TEST(bool(read(5000, {{0, 100, false}})));
}

BOOST_FIXTURE_TEST_CASE(reads_that_contradict_the_size_are_errors, read_fixture)
{
    for (const told& r : {told{5000, 0, true}, told{5000, 0, false}, told{0, 0, false}}) {
        const auto nothing = read(5000, {r});
        BOOST_REQUIRE(!nothing);
        BOOST_TEST((nothing.error() == std::errc::io_error));
    }
    for (const bool eof : {false, true}) {
        const auto beyond = read(0, {{0, 100, eof}});
        BOOST_REQUIRE(!beyond);
        BOOST_TEST((beyond.error() == std::errc::io_error));
    }
}

BOOST_AUTO_TEST_SUITE_END()
