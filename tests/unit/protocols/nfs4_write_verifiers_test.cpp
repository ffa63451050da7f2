// SPDX-License-Identifier: Apache-2.0
// The verifiers by which clients see that data which were written unstably are lost (RFC 8881 18.32.3), where a sync
// fails meanwhile, and copies that come to no end.
#include "nfs4_server.hpp"

#include <verbena/protocols/nfs/server/v4/storage.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <cerrno>

BOOST_AUTO_TEST_SUITE(nfs4_write_verifiers_test)

using namespace verbena;
using namespace verbena::test;

namespace {

/// Another's sync fails once the data are in memory: the verifier is another one before the call returns.
class failing_syncs final : public storage::forwarding_backend {
public:
    explicit failing_syncs(storage::file_backend& below)
        : forwarding_backend(below, storage::filter_bytes::are_those_below)
    {
    }
    std::uint64_t write_verifier() const noexcept override { return verifier; }
    task<result<storage::write_result>> write(const storage::request& r, const storage::handle& file,
                                              std::uint64_t offset,
                                              std::span<const std::span<const std::byte>> pieces,
                                              storage::stability wanted) override
    {
        auto done = co_await forwarding_backend::write(r, file, offset, pieces, wanted);
        verifier += fails;
        co_return done;
    }
    task<result<storage::change>> commit(const storage::request& r, const storage::handle& file,
                                         std::uint64_t offset, std::uint32_t count) override
    {
        auto done = co_await forwarding_backend::commit(r, file, offset, count);
        verifier += fails;
        co_return done;
    }
    task<result<storage::copy_result>> copy(const storage::request& r, const storage::handle& from,
                                            std::uint64_t from_offset, const storage::handle& to,
                                            std::uint64_t to_offset, std::uint64_t length) override
    {
        ++copies;
        if (copies > 2 && second_has_nothing)
            co_return verbena::error::from_errno(EIO);
        if (copies > 1 && second_has_nothing) {
            storage::copy_result none;
            none.committed = storage::stability::file_sync;
            co_return none;
        }
        auto done = co_await forwarding_backend::copy(r, from, from_offset, to, to_offset, length);
        verifier += fails;
        co_return done;
    }
    std::uint64_t verifier = 7;
    bool fails = false;
    unsigned copies = 0;
    bool second_has_nothing = false;
};

std::uint64_t number(const verifier4& v) { return xdr::load_u64(v.data()); }

struct fixture : nfs4_fixture {
    fixture()
    {
        options[0].backend = &disk;
        client.connect();
    }
    std::uint64_t write(const client4::opened& file, std::string_view text)
    {
        const WRITE4args args{file.id, 0, stable_how4::unstable, std::as_bytes(std::span(text))};
        answer4 out = client.call(PUTFH4args{client4::handle_of(file)}, args);
        out.good<PUTFH4res>();
        return number(out.good<WRITE4res>().writeverf);
    }
    std::uint64_t commit(const client4::opened& file)
    {
        answer4 out = client.call(PUTFH4args{client4::handle_of(file)}, COMMIT4args());
        out.good<PUTFH4res>();
        return number(out.good<COMMIT4res>().writeverf);
    }
    write_response4 copy(const client4::opened& from, const client4::opened& to)
    {
        COPY4args args;
        args.src_stateid = from.id;
        args.dst_stateid = to.id;
        args.consecutive = args.synchronous = true;
        answer4 out = client.call(PUTFH4args{client4::handle_of(from)}, SAVEFH4args(),
                                  PUTFH4args{client4::handle_of(to)}, args);
        out.good<PUTFH4res>();
        out.good<SAVEFH4res>();
        out.good<PUTFH4res>();
        return out.good<COPY4res>().response;
    }
    failing_syncs disk{*files};
    client4 client{*this, "a"};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_sync_that_fails_during_a_write_shows_in_the_verifier, fixture)
{
    const client4::opened file = client.open(client.creating("f"));
    BOOST_TEST(write(file, "text") == 7u);
    BOOST_TEST(commit(file) == 7u);
    disk.fails = true;
    BOOST_TEST(write(file, "text") == 7u);
    disk.fails = false;
    BOOST_TEST(commit(file) == 8u);
}

// What was written before the COMMIT may be lost by it.
BOOST_FIXTURE_TEST_CASE(a_sync_that_fails_during_a_commit_shows_in_the_verifier, fixture)
{
    const client4::opened file = client.open(client.creating("f"));
    BOOST_TEST(write(file, "text") == 7u);
    disk.fails = true;
    BOOST_TEST(commit(file) == 8u);
}

BOOST_FIXTURE_TEST_CASE(a_sync_that_fails_during_a_copy_shows_in_the_verifier, fixture)
{
    minor = 2;
    const client4::opened from = client.open(client.creating("from"));
    const client4::opened to = client.open(client.creating("to"));
    BOOST_TEST(write(from, "text") == 7u);
    disk.fails = true;
    const write_response4 copied = copy(from, to);
    BOOST_TEST(copied.count == 4u);
    BOOST_TEST(number(copied.writeverf) == 7u);
    disk.fails = false;
    BOOST_TEST(commit(to) == 8u);
}

// The source was cut meanwhile, for example: what was copied until then is told, and the back end is not asked on and
// on.
BOOST_FIXTURE_TEST_CASE(a_copy_that_comes_no_further_ends, fixture)
{
    minor = 2;
    const client4::opened from = client.open(client.creating("from"));
    const client4::opened to = client.open(client.creating("to"));
    BOOST_TEST(
        client.call(PUTFH4args{client4::handle_of(from)}, ALLOCATE4args{from.id, 0, 4u << 20}).status() ==
        nfsstat4::ok);
    disk.second_has_nothing = true;
    const write_response4 copied = copy(from, to);
    BOOST_TEST(copied.count > 0u);
    BOOST_TEST(copied.count < 4u << 20);
    BOOST_TEST(disk.copies == 2u);
}

BOOST_AUTO_TEST_SUITE_END()
