// SPDX-License-Identifier: Apache-2.0
// What nfs::file sends again when a server has lost unstable data (RFC 1813 3.3.7, 4.8), beside a server that keeps two
// copies of a file: what it has in memory, and what it would have after a restart.
#include "nfs3_vectors.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/client/v3/file.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>

BOOST_AUTO_TEST_SUITE(nfs_client_file_test)

using namespace verbena;
using namespace verbena::test;

namespace {

constexpr std::size_t call_header = 40; // without a credential

class forgetful final : public rpc::client_transport {
public:
    explicit forgetful(buffer_pool& b) : buffers_(b) {}
    task<result<void>> connect() override { co_return result<void>(); }
    task<result<rpc::reply>> call(rpc::request& r) override
    {
        xdr::decoder in(r.message().bytes());
        (void)in.opaque_fixed(20);
        const std::uint32_t procedure = in.u32();
        (void)in.opaque_fixed(call_header - 24);
        (void)in.opaque_var(64);
        const std::uint64_t offset = in.u64();
        lease memory = co_await buffers_.acquire(buffer_pool::min_size);
        xdr::encoder e(memory.bytes());
        for (const std::uint32_t word : {0U, 1U, 0U, 0U, 0U, 0U}) // an accepted reply
            e.u32(word);
        if (procedure == 7)
            co_await write(offset, r.argument(), e);
        else
            commit(e);
        const std::span<const std::byte> message(memory.data(), e.size());
        rpc::reply answer(std::move(memory), message, {}, false);
        if (auto decoded = answer.decode_header(); !decoded)
            co_return decoded.error();
        co_return std::move(answer);
    }
    task<void> close() override { co_return; }
    task<lease> acquire(std::size_t size) override { co_return co_await buffers_.acquire(size); }
    std::string_view name() const noexcept override { return "forgetful"; }
    std::uint64_t connections() const noexcept override { return 1; }
    bool answered() const noexcept override { return true; }

    void restart()
    {
        content = on_disk;
        ++verifier;
    }
    std::string content;
    std::string on_disk;
    std::string order;                      // first octets of WRITEs, and '|' for a COMMIT
    std::size_t most = SIZE_MAX;            // octets that a WRITE takes
    std::function<void(char)> before_write; // with its first octet
    char stable = 0;                        // a WRITE that begins so is stable at once
    char failing = 0;                       // one fails
    event* on_commit = nullptr;             // set by a COMMIT
    event* hold_first = nullptr;            // a WRITE that begins so waits for it and is done then
    char held_first = 0;
    event* hold_write = nullptr; // one that begins with `held` is done, and its reply comes later
    char held = 0;

private:
    task<void> write(std::uint64_t offset, const rpc::payload& data, xdr::encoder& e)
    {
        std::string bytes;
        for (const auto piece : data.pieces())
            bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        bytes.resize(std::min(bytes.size(), most));
        if (before_write)
            before_write(bytes[0]);
        if (bytes[0] == held_first && hold_first != nullptr)
            (void)co_await hold_first->wait();
        order += bytes[0];
        if (bytes[0] == failing) {
            failing = 0;
            e.u32(5); // NFS3ERR_IO
            e.u32(0);
            e.u32(0);
            co_return;
        }
        const auto put = [&](std::string& to) {
            to.resize(std::max(to.size(), std::size_t(offset) + bytes.size()), '.');
            to.replace(offset, bytes.size(), bytes);
        };
        put(content);
        if (bytes[0] == stable)
            put(on_disk);
        const std::uint64_t now = verifier;
        if (bytes[0] == held && hold_write != nullptr)
            (void)co_await hold_write->wait();
        e.u32(0);
        e.u32(0);
        e.u32(0);
        e.u32(static_cast<std::uint32_t>(bytes.size()));
        e.u32(bytes[0] == stable ? 2 : 0);
        e.u64(now);
    }
    void commit(xdr::encoder& e)
    {
        order += '|';
        on_disk = content;
        e.u32(0);
        e.u32(0);
        e.u32(0);
        e.u64(verifier);
        if (on_commit != nullptr)
            on_commit->set();
    }
    buffer_pool& buffers_;
    std::uint64_t verifier = 1;
};

struct fixture {
    fixture()
        : budget(64 << 20),
          shard(std::move(*reactor::create())),
          buffers(budget, shard.get()),
          server(buffers),
          client(server, {}),
          file(client, node_of(handle_of("a1a2a3a4")))
    {
    }
    static nfs::node node_of(const nfs::v3::nfs_fh3& handle)
    {
        nfs::node n;
        n.handle = handle;
        return n;
    }
    task<result<void>> writing(std::uint64_t offset, std::string text)
    {
        lease memory = co_await buffers.acquire(text.size());
        std::ranges::copy(std::as_bytes(std::span(text)), memory.data());
        const std::span<const std::byte> bytes(memory.data(), text.size());
        rpc::payload data(std::move(memory), bytes);
        co_return co_await file.write(offset, std::move(data));
    }
    void write(std::uint64_t offset, std::string text)
    {
        const auto done = run_until_complete(*shard, writing(offset, std::move(text)));
        BOOST_REQUIRE(done);
    }
    result<void> commit() { return run_until_complete(*shard, file.commit()); }
    memory_budget budget;
    std::unique_ptr<reactor> shard;
    buffer_pool buffers;
    forgetful server;
    nfs::client client;
    nfs::file file;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(of_overlapping_writes_the_newest_stays_on_top, fixture)
{
    write(0, "AAAA");
    write(0, "BB");
    write(1, "CC");
    server.restart();
    BOOST_REQUIRE(commit());
    BOOST_TEST(server.order == "ABC|ABC|");
    BOOST_TEST(server.on_disk == "BCCA");
    BOOST_TEST(file.uncommitted() == 0u);
    BOOST_TEST(file.resent() == 8u);
}

BOOST_FIXTURE_TEST_CASE(what_is_taken_in_parts_is_sent_in_order_too, fixture)
{
    server.most = 3;
    write(0, "AAAA");
    write(2, "BBBB");
    server.restart();
    server.most = 1;
    BOOST_REQUIRE(commit());
    BOOST_TEST(server.on_disk == "AABBBB");
    BOOST_TEST(file.uncommitted() == 0u);
}

// The first was lost, and the second, written after the restart, was not.
BOOST_FIXTURE_TEST_CASE(what_lies_on_lost_data_is_sent_again_too, fixture)
{
    write(0, "AAAA");
    server.restart();
    write(2, "BBBB");
    write(6, "CC");
    BOOST_REQUIRE(commit());
    BOOST_TEST(server.order == "ABC|AB|"); // the third lies elsewhere
    BOOST_TEST(server.on_disk == "AABBBBCC");
}

BOOST_FIXTURE_TEST_CASE(stable_data_on_lost_data_is_sent_again_too, fixture)
{
    server.stable = 'B';
    write(0, "AAAA");
    server.restart();
    write(1, "BB");
    BOOST_REQUIRE(commit());
    BOOST_TEST(server.order == "AB|AB|");
    BOOST_TEST(server.on_disk == "ABBA");
    BOOST_TEST(file.uncommitted() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_resend_that_fails_goes_on_in_order_with_the_next_commit, fixture)
{
    write(0, "AAAA");
    server.restart();
    write(0, "BB");
    server.failing = 'B';
    BOOST_TEST(!commit());
    BOOST_TEST(file.uncommitted() == 6u);
    BOOST_REQUIRE(commit());
    BOOST_TEST(server.order == "AB|AB|B|");
    BOOST_TEST(server.on_disk == "BBAA");
    BOOST_TEST(file.uncommitted() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_write_waits_for_a_resend, fixture)
{
    write(0, "AAAA");
    server.restart();
    scope others(*shard);
    bool wrote = false;
    bool spawned = false;
    const auto other = [&]() -> task<void> {
        const auto done = co_await writing(0, "CC");
        wrote = bool(done);
    };
    event tried;
    const auto releases = [&]() -> task<void> {
        tried.set();
        co_return;
    };
    server.hold_first = &tried;
    server.held_first = 'A';
    server.before_write = [&](char first) {
        if (first == 'A' && !std::exchange(spawned, true)) {
            others.spawn(other);
            others.spawn(releases);
        }
    };
    const auto both = [&]() -> task<void> {
        const auto done = co_await file.commit();
        BOOST_TEST(bool(done));
        co_await others.join();
    };
    run_until_complete(*shard, both());
    BOOST_TEST(wrote);
    BOOST_TEST(server.order.substr(0, 3) == "A|A"); // and "C" behind them
    BOOST_REQUIRE(commit());
    BOOST_TEST(server.on_disk == "CCAA");
}

// Whether the server did it before or after its restart is not known before its reply is here.
BOOST_FIXTURE_TEST_CASE(a_resend_waits_for_writes_in_progress, fixture)
{
    write(0, "AAAA");
    server.restart();
    scope others(*shard);
    event reply_may_come, committed;
    server.hold_write = &reply_may_come;
    server.held = 'C';
    server.on_commit = &committed;
    const auto other = [&]() -> task<void> {
        const auto done = co_await writing(0, "CC");
        BOOST_TEST(bool(done));
    };
    const auto releases = [&]() -> task<void> {
        (void)co_await committed.wait();
        reply_may_come.set();
    };
    const auto all = [&]() -> task<void> {
        others.spawn(other);
        others.spawn(releases);
        const auto done = co_await file.commit();
        BOOST_TEST(bool(done));
        co_await others.join();
    };
    run_until_complete(*shard, all());
    BOOST_REQUIRE(commit());
    BOOST_TEST(server.on_disk == "CCAA");
    BOOST_TEST(file.uncommitted() == 0u);
}

BOOST_FIXTURE_TEST_CASE(commits_at_once_all_wait_for_the_data, fixture)
{
    write(0, "AAAA");
    server.restart();
    scope others(*shard);
    std::string seen;
    bool spawned = false;
    const auto other = [&]() -> task<void> {
        const auto done = co_await file.commit();
        BOOST_TEST(bool(done));
        seen = server.on_disk;
    };
    server.before_write = [&](char) {
        if (seen.empty() && !std::exchange(spawned, true))
            others.spawn(other);
    };
    const auto both = [&]() -> task<void> {
        const auto done = co_await file.commit();
        BOOST_TEST(bool(done));
        co_await others.join();
    };
    run_until_complete(*shard, both());
    BOOST_TEST(seen == "AAAA");
    BOOST_TEST(server.order == "A|A|");
    BOOST_TEST(file.uncommitted() == 0u);
}

namespace {

// A file whose server takes all that it is given, and whose COMMIT may fail.
class written_there final : public nfs::written_file {
public:
    using written_file::committed;
    using written_file::written;

    nfs::v3::writeverf3 verifier{};
    int good_commits = 100; // before they fail
    std::size_t sent = 0;   // WRITEs

private:
    task<result<nfs::write_result>> send(std::uint64_t, rpc::payload data) override
    {
        ++sent;
        nfs::write_result out;
        out.count = static_cast<std::uint32_t>(data.size());
        out.verifier = verifier;
        co_return out;
    }
    task<result<nfs::v3::writeverf3>> sync() override
    {
        if (good_commits-- <= 0)
            co_return error(std::errc::timed_out, "COMMIT");
        co_return verifier;
    }
    std::uint32_t most_at_once() const noexcept override { return 64; }
};

} // namespace

// A COMMIT that somebody else has sent comes back late: what it is told for was sent again behind it.
BOOST_FIXTURE_TEST_CASE(a_commit_does_not_cover_what_was_sent_again_behind_it, fixture)
{
    const std::string text = "AAAA";
    written_there there;
    const auto write = [&] {
        rpc::payload data{lease(), std::as_bytes(std::span(text))};
        return run_until_complete(*shard, there.write(0, std::move(data)));
    };
    BOOST_TEST_REQUIRE(write().has_value());
    const std::uint64_t before =
        there.written(); // the COMMIT goes out, to a server that has started again by then
    there.verifier[0] = std::byte(2);
    there.good_commits = 1;
    BOOST_TEST(!run_until_complete(*shard, there.commit()).has_value());
    BOOST_TEST(there.sent == 2u);
    there.committed(before, there.verifier);
    BOOST_TEST(there.uncommitted() == 4u);
    // The server loses it again, and is given it again.
    there.verifier[0] = std::byte(3);
    there.good_commits = 2;
    BOOST_TEST(run_until_complete(*shard, there.commit()).has_value());
    BOOST_TEST(there.sent == 3u);
    BOOST_TEST(there.uncommitted() == 0u);
    // One that went out behind it covers it.
    BOOST_TEST_REQUIRE(write().has_value());
    there.committed(there.written(), there.verifier);
    BOOST_TEST(there.uncommitted() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
