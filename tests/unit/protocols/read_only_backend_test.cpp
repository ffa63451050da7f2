// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/storage/permissions.hpp>
#include <verbena/protocols/storage/read_only_backend.hpp>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(read_only_backend_test)

using namespace verbena;
using namespace verbena::storage;

namespace {

// As little as a back end needs: a directory with one file.
class one_file : public read_only_backend {
public:
    static constexpr std::string_view content = "hello";

    std::string_view kind() const noexcept override { return "one_file"; }
    const filesystem_info& info() const noexcept override { return info_; }
    handle root() const noexcept override { return name(1); }
    task<result<attributes>> getattr(const request&, const handle& h) override
    {
        attributes a;
        a.fileid = h == name(1) ? 1 : 2;
        a.type = h == name(1) ? file_type::directory : file_type::regular;
        a.mode = mode;
        a.uid = 1000;
        a.gid = 100;
        a.size = content.size();
        if (!(h == name(1)) && !(h == name(2)))
            co_return error::from_errno(ESTALE);
        co_return a;
    }
    task<result<lookup_result>> lookup(const request&, const handle&, std::string_view wanted) override
    {
        lookup_result found;
        found.found.handle = name(2);
        if (wanted != "file")
            co_return error::from_errno(ENOENT);
        co_return found;
    }
    task<result<read_result>> read(const request&, const handle&, std::uint64_t,
                                   std::span<std::byte> out) override
    {
        std::memcpy(out.data(), content.data(), content.size());
        read_result done;
        done.count = content.size();
        done.end_of_file = true;
        co_return done;
    }
    task<result<readdir_result>> readdir(const request&, const handle&, std::uint64_t, std::uint64_t, bool,
                                         directory_sink&) override
    {
        co_return readdir_result();
    }

    std::uint32_t mode = 0777;

private:
    static handle name(char n) noexcept
    {
        const std::byte bytes[] = {std::byte(n)};
        return handle(bytes);
    }
    filesystem_info info_;
};

struct fixture {
    template<class T>
    int fails(task<result<T>> t)
    {
        const auto r = run_until_complete(*shard, std::move(t));
        return r ? 0 : r.error().errno_value();
    }
    template<class T>
    T must(task<result<T>> t)
    {
        auto r = run_until_complete(*shard, std::move(t));
        BOOST_REQUIRE(r);
        return std::move(*r);
    }
    static request by(std::uint32_t uid, std::uint32_t gid, std::vector<std::uint32_t> groups = {})
    {
        request r;
        r.who = credential(uid, gid);
        r.who.set_groups(groups);
        return r;
    }

    std::unique_ptr<reactor> shard = std::move(*reactor::create());
    one_file fs;
    request me = by(0, 0);
    handle root = fs.root();
    handle file = must(fs.lookup(me, root, "file")).found.handle;
};

constexpr unsigned all = R_OK | W_OK | X_OK;

/// A back end with rules of its own, which grants more than it is asked for.
class generous_file final : public one_file {
    task<result<unsigned>> may_read(const request&, const handle&, unsigned) override { co_return all; }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(every_change_is_refused, fixture)
{
    const set_attributes set;
    const std::span<const std::byte> piece;
    BOOST_TEST(fails(fs.setattr(me, file, set, std::nullopt)) == EROFS);
    BOOST_TEST(fails(fs.write(me, file, 0, std::span(&piece, 1), stability::file_sync)) == EROFS);
    BOOST_TEST(fails(fs.create(me, root, "a", create_mode::unchecked, set, 0)) == EROFS);
    BOOST_TEST(fails(fs.mkdir(me, root, "a", set)) == EROFS);
    BOOST_TEST(fails(fs.symlink(me, root, "a", "b", set)) == EROFS);
    BOOST_TEST(fails(fs.mknod(me, root, "a", file_type::fifo, 0, 0, set)) == EROFS);
    BOOST_TEST(fails(fs.remove(me, root, "file")) == EROFS);
    BOOST_TEST(fails(fs.rmdir(me, root, "file")) == EROFS);
    BOOST_TEST(fails(fs.rename(me, root, "file", root, "b")) == EROFS);
    BOOST_TEST(fails(fs.link(me, file, root, "b")) == EROFS);
    BOOST_TEST(fails(fs.commit(me, file, 0, 0)) == EROFS);
    BOOST_TEST(fs.write_verifier() == 0u);
}

BOOST_FIXTURE_TEST_CASE(nobody_may_write, fixture)
{
    BOOST_TEST(must(fs.access(me, root, all)) == unsigned(R_OK | X_OK));
    BOOST_TEST(must(fs.access(me, file, all)) == unsigned(R_OK | X_OK));
    BOOST_TEST(must(fs.access(me, file, W_OK)) == 0u);
    BOOST_TEST(must(fs.access(by(1000, 100), file, all)) == unsigned(R_OK | X_OK));
    BOOST_TEST(fails(fs.access(me, handle(), all)) == ESTALE);
}

BOOST_FIXTURE_TEST_CASE(whatever_a_back_end_grants_nobody_may_write, fixture)
{
    generous_file generous;
    file_backend& backend = generous;
    BOOST_TEST(must(backend.access(me, file, all)) == unsigned(R_OK | X_OK));
    BOOST_TEST(must(backend.access(me, file, W_OK)) == 0u);
}

BOOST_FIXTURE_TEST_CASE(mode_bits_say_who_may_read, fixture)
{
    fs.mode = 0421; // the owner may read, the group write, others execute
    BOOST_TEST(must(fs.access(by(1000, 7), file, all)) == unsigned(R_OK));
    BOOST_TEST(must(fs.access(by(7, 100), file, all)) == 0u);
    BOOST_TEST(must(fs.access(by(7, 7, {50, 100}), file, all)) == 0u);
    BOOST_TEST(must(fs.access(by(7, 7), file, all)) == unsigned(X_OK));
    BOOST_TEST(must(fs.access(by(7, 7), file, R_OK)) == 0u);
    fs.mode = 0600;
    BOOST_TEST(must(fs.access(me, file, all)) == unsigned(R_OK)); // nobody may execute it
    BOOST_TEST(must(fs.access(me, root, all)) == unsigned(R_OK | X_OK));
}

BOOST_FIXTURE_TEST_CASE(what_it_says_of_itself_without_help, fixture)
{
    BOOST_TEST(fails(fs.readlink(me, file)) == EINVAL);
    const auto space = must(fs.statfs(me, root));
    BOOST_TEST(space.total_bytes == 0u);
    BOOST_TEST(space.free_files == 0u);
    BOOST_TEST(fails(fs.statfs(me, handle())) == ESTALE);
    BOOST_TEST(!must(fs.locate(me, file, 0, 10, storage::locatable::memory_or_file)).here);
}

BOOST_AUTO_TEST_SUITE_END()
