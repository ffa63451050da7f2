// SPDX-License-Identifier: Apache-2.0
// What the client sends to make exclusive and special files, and what it reads of the reply, against bytes made by hand
// (RFC 1813 3.3.8, 3.3.11).
#include "nfs3_vectors.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/client/v3/client.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs_client_create_test)

using namespace verbena;
using namespace verbena::test;

namespace {

constexpr std::size_t call_header = 40; // without a credential

// Answers the one call by `results`.
class scripted final : public rpc::client_transport {
public:
    scripted(buffer_pool& b, std::string_view results) : buffers_(b), results_(from_hex(results)) {}
    task<result<void>> connect() override { co_return result<void>(); }
    task<result<rpc::reply>> call(rpc::request& r) override
    {
        sent = to_hex(r.message().bytes().subspan(call_header));
        procedure = to_hex(r.message().bytes().subspan(20, 4));
        lease memory = co_await buffers_.acquire(buffer_pool::min_size);
        xdr::encoder e(memory.bytes());
        for (const std::uint32_t word : {0U, 1U, 0U, 0U, 0U, 0U}) // an accepted reply
            e.u32(word);
        e.opaque_fixed(results_);
        const std::span<const std::byte> message(memory.data(), e.size());
        rpc::reply answer(std::move(memory), message, {}, false);
        if (auto decoded = answer.decode_header(); !decoded)
            co_return decoded.error();
        co_return std::move(answer);
    }
    task<void> close() override { co_return; }
    task<lease> acquire(std::size_t size) override { co_return co_await buffers_.acquire(size); }
    std::string_view name() const noexcept override { return "scripted"; }
    std::uint64_t connections() const noexcept override { return 1; }
    bool answered() const noexcept override { return !sent.empty(); }
    std::string sent;
    std::string procedure;

private:
    buffer_pool& buffers_;
    std::vector<std::byte> results_;
};

struct fixture {
    fixture()
        : budget(64 << 20),
          shard(std::move(*reactor::create())),
          buffers(budget, shard.get()),
          server(buffers, hex({"00000000 00000001", handle_2, post_op_attr_hex, no_wcc})),
          client(server, {})
    {
        attributes.mode = 0644;
    }
    void made_it(const result<nfs::node>& made)
    {
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        BOOST_TEST((made->handle == handle_of("a1a2a3a4")));
        BOOST_TEST((made->attributes == sample_fattr3()));
    }
    memory_budget budget;
    std::unique_ptr<reactor> shard;
    buffer_pool buffers;
    scripted server;
    nfs::client client;
    nfs::v3::nfs_fh3 directory = handle_of("010203040506");
    nfs::v3::sattr3 attributes;
};

constexpr std::string_view mode_alone = "00000001 000001a4 00000000 00000000 00000000 00000000 00000000";

} // namespace

BOOST_FIXTURE_TEST_CASE(an_exclusive_create_has_a_verifier_and_no_attributes, fixture)
{
    const std::vector<std::byte> bytes = from_hex("c1c2c3c4 c5c6c7c8");
    nfs::v3::createverf3 verifier{};
    std::ranges::copy(bytes, verifier.begin());
    made_it(run_until_complete(*shard, client.create_exclusive(directory, "name.c", verifier)));
    BOOST_TEST(server.procedure == "00000008");
    BOOST_TEST(server.sent == to_hex(hex({handle_1, name_1, "00000002", "c1c2c3c4 c5c6c7c8"})));
}

BOOST_FIXTURE_TEST_CASE(a_fifo_has_no_numbers, fixture)
{
    made_it(run_until_complete(*shard, client.mknod(directory, "name.c", nfs::v3::ftype3::fifo, attributes)));
    BOOST_TEST(server.procedure == "0000000b");
    BOOST_TEST(server.sent == to_hex(hex({handle_1, name_1, "00000007", mode_alone})));
}

BOOST_FIXTURE_TEST_CASE(a_device_has_numbers, fixture)
{
    made_it(run_until_complete(*shard,
                               client.mknod(directory, "name.c", nfs::v3::ftype3::chr, attributes, {8, 17})));
    BOOST_TEST(server.sent == to_hex(hex({handle_1, name_1, "00000004", mode_alone, "00000008 00000011"})));
}

BOOST_FIXTURE_TEST_CASE(a_name_too_long_is_not_asked_for, fixture)
{
    const std::string name(nfs::client::max_name + 1, 'n');
    const auto exclusive = run_until_complete(*shard, client.create_exclusive(directory, name, {}));
    const auto fifo =
        run_until_complete(*shard, client.mknod(directory, name, nfs::v3::ftype3::fifo, attributes));
    for (const auto* made : {&exclusive, &fifo}) {
        BOOST_REQUIRE(!*made);
        BOOST_TEST((made->error() == std::errc::filename_too_long));
    }
    BOOST_TEST(server.sent.empty());
}

BOOST_AUTO_TEST_SUITE_END()
