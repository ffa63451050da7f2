// SPDX-License-Identifier: Apache-2.0
// What the client makes of directories that a server tells it of, against replies made by hand (RFC 1813 3.3.16).
#include <boost/test/unit_test.hpp>

#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/client/v3/client.hpp>

#include <deque>
#include <optional>

BOOST_AUTO_TEST_SUITE(nfs_client_listing_test)

using namespace verbena;

namespace {

struct page {
    std::uint64_t cookie; // of its only entry
    bool last;
};

// Answers each READDIR with the next page; the last one again and again.
class scripted final : public rpc::client_transport {
public:
    scripted(buffer_pool& b, std::deque<page> pages) : buffers_(b), pages_(std::move(pages)) {}
    task<result<void>> connect() override { co_return result<void>(); }
    task<result<rpc::reply>> call(rpc::request&) override
    {
        const page now = pages_.front();
        if (pages_.size() > 1)
            pages_.pop_front();
        ++calls;
        lease memory = co_await buffers_.acquire(buffer_pool::min_size);
        xdr::encoder e(memory.bytes());
        for (const std::uint32_t word : {0U, 1U, 0U, 0U, 0U, 0U}) // an accepted reply
            e.u32(word);
        e.u32(0); // NFS3_OK
        e.u32(0); // no attributes
        e.u64(0); // cookie verifier
        e.u32(1); // an entry follows
        e.u64(100 + calls);
        e.string("name");
        e.u64(now.cookie);
        e.u32(0);
        e.u32(now.last ? 1 : 0);
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
    unsigned calls = 0;

private:
    buffer_pool& buffers_;
    std::deque<page> pages_;
};

struct fixture {
    fixture() : budget(64 << 20), shard(std::move(*reactor::create())), buffers(budget, shard.get()) {}
    result<std::vector<nfs::directory_entry>> list(std::deque<page> pages, std::size_t most)
    {
        scripted server(buffers, std::move(pages));
        nfs::client client(server, {});
        auto job = [&]() -> task<result<std::vector<nfs::directory_entry>>> {
            nfs::v3::nfs_fh3 directory;
            co_return co_await client.list(directory, false, most);
        };
        auto listed = run_until_complete(*shard, job());
        calls = server.calls;
        return listed;
    }
    memory_budget budget;
    std::unique_ptr<reactor> shard;
    buffer_pool buffers;
    unsigned calls = 0;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(pages_are_put_together, fixture)
{
    const auto listed = list({{7, false}, {9, false}, {3, true}}, nfs::client::listing_bytes);
    BOOST_REQUIRE(listed);
    BOOST_TEST(listed->size() == 3u);
    BOOST_TEST(listed->back().fileid == 103u);
    BOOST_TEST(calls == 3u);
}

BOOST_FIXTURE_TEST_CASE(cookies_that_go_round_in_a_circle_end_it, fixture)
{
    for (const std::deque<page>& circle :
         {std::deque<page>{{7, false}}, {{7, false}, {9, false}, {7, false}}}) {
        const auto listed = list(circle, nfs::client::listing_bytes);
        BOOST_REQUIRE(!listed);
        BOOST_TEST((listed.error() == std::errc::protocol_error));
        BOOST_TEST(calls <= 3u);
    }
}

BOOST_FIXTURE_TEST_CASE(more_than_the_caller_will_hold_is_an_error, fixture)
{
    std::deque<page> endless;
    for (std::uint64_t cookie = 1; cookie < 10'000; ++cookie)
        endless.push_back({cookie, false});
    const auto listed = list(std::move(endless), 16 * sizeof(nfs::directory_entry));
    BOOST_REQUIRE(!listed);
    BOOST_TEST((listed.error() == std::errc::value_too_large));
    BOOST_TEST(calls <= 16u);
}

BOOST_AUTO_TEST_SUITE_END()
