// SPDX-License-Identifier: Apache-2.0
// What `verbena` has a server of version 4.2 copy by itself, and what it does not.
#include "../protocols/nfs4_direct_transport.hpp"
#include "../protocols/nfs4_user_names.hpp"

#include <client/remote.hpp>
#include <client/user_lookups.hpp>

#include <array>

BOOST_AUTO_TEST_SUITE(client_remote4_test)

using namespace verbena;
using namespace verbena::test;
using nfs::v4::client;

namespace {

// Two clients of one server, as the two URLs of `verbena cp` have them.
struct fixture : nfs4_fixture {
    template<class F>
    auto run(const F& f)
    {
        return run_until_complete(*shard, f());
    }
    fixture()
    {
        start();
        for (client* each : {&reads, &writes})
            BOOST_REQUIRE(run([&] { return each->open_session(); }));
        const auto root = run([&] { return writes.root(); });
        BOOST_REQUIRE(root);
        const auto found = run([&] { return writes.walk(root->handle, "/export", true); });
        BOOST_REQUIRE(found);
        top = found->handle;
        {
            auto made = run([&] { return target->create(top, "from", unset); });
            BOOST_REQUIRE(made);
            BOOST_REQUIRE(run([&] { return write(**made, text); }));
            BOOST_REQUIRE(run([&] { return (*made)->close(); }));
        }
        const auto node = run([&] { return reads.walk(top, "from", true); });
        BOOST_REQUIRE(node);
        auto opened = run([&] { return source->open(*node); });
        auto made = run([&] { return target->create(top, "to", unset); });
        BOOST_REQUIRE((opened && made));
        from = std::move(*opened);
        to = std::move(*made);
        target_wire.sent.clear();
    }
    ~fixture()
    {
        target_wire.on_reply_to = nullptr;
        for (cli::open_file* each : {from.get(), to.get()})
            BOOST_TEST(run([&] { return each->close(); }).has_value());
        const auto end = [this]() -> task<void> {
            co_await reads.close();
            co_await writes.close();
        };
        run_until_complete(*shard, end());
    }
    static task<result<void>> write(cli::open_file& file, std::string_view words)
    {
        rpc::payload bytes(lease(), std::as_bytes(std::span(words)));
        co_return co_await file.write(0, std::move(bytes));
    }
    auto copy()
    {
        return run([&] { return target->copy(*from, *to, text.size(), nullptr); });
    }
    /// What the server of the target says of the file that it knows by the handle of `from`.
    void change_what_is_told(std::size_t field)
    {
        const auto node = run([&] { return writes.lookup(top, "from"); });
        BOOST_REQUIRE(node);
        // As the attributes lie there: change, size, both numbers of the file system, id.
        const nfs::v4::file_attributes& a = node->attributes;
        std::array<std::byte, 40> words;
        std::size_t at = 0;
        for (const std::uint64_t word : {a.change, a.size, a.fsid.major, a.fsid.minor, a.fileid}) {
            xdr::store_u64(words.data() + at, word);
            at += 8;
        }
        target_wire.on_reply_to = [words, field](const sent_compound& call, std::vector<std::byte>& reply) {
            if (!call.has(nfs_opnum4::open))
                return;
            const auto found = std::ranges::search(reply, words);
            BOOST_REQUIRE(!found.empty());
            *(found.begin() + static_cast<std::ptrdiff_t>(8 * field + 7)) ^= std::byte(1);
        };
    }

    const std::string text = std::string(100'000, 'x');
    const nfs::v4::new_attributes unset;
    direct_transport source_wire{*this};
    direct_transport target_wire{*this};
    client reads{source_wire, nfs::identity(1000, 100, {}, "host"), "who reads"};
    client writes{target_wire, nfs::identity(1000, 100, {}, "host"), "who writes"};
    std::unique_ptr<cli::remote> source = cli::make_remote(reads);
    std::unique_ptr<cli::remote> target = cli::make_remote(writes);
    nfs::v4::known_handle top;
    std::unique_ptr<cli::open_file> from;
    std::unique_ptr<cli::open_file> to;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_lies_on_the_server_is_copied_there, fixture)
{
    BOOST_TEST(target->copies_from(*source));
    const auto copied = copy();
    BOOST_REQUIRE_MESSAGE(copied, (copied ? std::string() : copied.error().message()));
    BOOST_TEST(*copied == text.size());
    BOOST_TEST(target_wire.count(nfs_opnum4::copy) == 1u);
    BOOST_TEST(target_wire.count(nfs_opnum4::lookup) == 0u); // what is open need not be found again
}

BOOST_FIXTURE_TEST_CASE(a_file_of_another_server_of_that_name_is_not, fixture)
{
    for (const std::size_t field : {2u, 3u, 4u}) {
        change_what_is_told(field);
        const auto copied = copy();
        BOOST_TEST((!copied && copied.error() == std::errc::not_supported));
    }
    BOOST_TEST(target_wire.count(nfs_opnum4::copy) == 0u);
    BOOST_TEST(target_wire.count(nfs_opnum4::open) == target_wire.count(nfs_opnum4::close));
}

BOOST_FIXTURE_TEST_CASE(a_file_that_changes_meanwhile_is_not, fixture)
{
    for (const std::size_t field : {0u, 1u}) {
        change_what_is_told(field);
        const auto copied = copy();
        BOOST_TEST((!copied && copied.error().code() == std::error_code(ESTALE, std::generic_category())));
    }
    BOOST_TEST(target_wire.count(nfs_opnum4::copy) == 0u);
    BOOST_TEST(target_wire.count(nfs_opnum4::open) == target_wire.count(nfs_opnum4::close));
}

// The command leaves it behind, and the process with it.
BOOST_AUTO_TEST_CASE(a_lookup_that_hangs_does_not_hold_up_the_end)
{
    virtual_clock clock;
    auto shard = nfs4_fixture::make_reactor(clock);
    named_accounts source;
    const auto id_of = [&](cli::user_lookups& of) {
        return run_until_complete(*shard, of.names().id_of(account_kind::user, "alice@example.org"));
    };
    {
        cli::user_lookups quick(*shard, source, {});
        BOOST_TEST(id_of(quick).id == 1000u);
        const time_point before = clock.now();
        BOOST_TEST(run_until_complete(*shard, quick.end(1s)));
        BOOST_TEST((clock.now() == before));
    }
    cli::user_lookups slow(*shard, source, {});
    source.be_slow();
    BOOST_TEST((id_of(slow).how == user_names::outcome::later));
    const time_point before = clock.now();
    BOOST_TEST(!run_until_complete(*shard, slow.end(1s)));
    BOOST_TEST((clock.now() - before == 1s));
    source.answer();
    for (int i = 0; i < 20; ++i)
        shard->turn();
}

BOOST_AUTO_TEST_SUITE_END()
