// SPDX-License-Identifier: Apache-2.0
// What every file back end must do. A test file defines make_backend() and includes this; the cases
// then run against that back end.
#pragma once

#include <boost/test/unit_test.hpp>

#include <verbena/core/blocking.hpp>
#include <verbena/core/scope.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace suite {

using namespace verbena;
using namespace verbena::storage;

struct backend_options {
    bool read_only = false;
};

/// One back end on one shard, and a request by root.
struct fixture {
    fixture();
    /// Runs a call to its end and gives its result.
    template<class T>
    T run(task<T> t)
    {
        return run_until_complete(*shard, std::move(t));
    }
    /// Runs it and requires success.
    template<class T>
    T must(task<result<T>> t)
    {
        auto r = run(std::move(t));
        BOOST_REQUIRE_MESSAGE(r.has_value(), (r.has_value() ? std::string() : r.error().message()));
        return std::move(*r);
    }
    /// Runs it and gives the errno it failed with; 0 on success, -1 for other errors.
    template<class T>
    int fails(task<result<T>> t)
    {
        auto r = run(std::move(t));
        if (r.has_value())
            return 0;
        const int e = r.error().errno_value();
        return e != 0 ? e : -1;
    }
    template<class T>
    std::error_code fails_with(task<result<T>> t)
    {
        auto r = run(std::move(t));
        return r.has_value() ? std::error_code() : r.error().code();
    }

    handle make_file(std::string_view name, std::string_view content = {}, std::uint32_t mode = 0644)
    {
        return make_file(me, fs->root(), name, content, mode);
    }
    handle make_file(const request& who, const handle& directory, std::string_view name,
                     std::string_view content = {}, std::uint32_t mode = 0644)
    {
        set_attributes set;
        set.mode = mode;
        auto made = must(fs->create(who, directory, name, create_mode::guarded, set, 0));
        if (!content.empty())
            put(who, made.made.handle, 0, content);
        return made.made.handle;
    }
    handle make_directory(const handle& in, std::string_view name, std::uint32_t mode = 0755)
    {
        set_attributes set;
        set.mode = mode;
        return must(fs->mkdir(me, in, name, set)).made.handle;
    }
    static std::span<const std::byte> bytes(std::string_view text)
    {
        return std::as_bytes(std::span(text.data(), text.size()));
    }
    task<result<write_result>> write(const request& who, const handle& file, std::uint64_t offset,
                                     std::string_view text, stability how = stability::unstable)
    {
        const std::span<const std::byte> piece = bytes(text);
        co_return co_await fs->write(who, file, offset, std::span(&piece, 1), how);
    }
    void put(const request& who, const handle& file, std::uint64_t offset, std::string_view text)
    {
        BOOST_TEST_REQUIRE(must(write(who, file, offset, text)).count == text.size());
    }
    std::string get(const request& who, const handle& file, std::uint64_t offset = 0,
                    std::size_t length = 65536)
    {
        std::string out(length, 0);
        auto r = must(fs->read(who, file, offset, std::as_writable_bytes(std::span(out.data(), out.size()))));
        out.resize(r.count);
        return out;
    }
    attributes stat(const handle& file) { return must(fs->getattr(me, file)); }
    handle find(const handle& directory, std::string_view name)
    {
        return must(fs->lookup(me, directory, name)).found.handle;
    }

    std::unique_ptr<reactor> shard;
    blocking_pool pool{4};
    std::unique_ptr<file_backend> fs;
    request me;
};

/// Gives the back end under test, empty, its root open to all (mode 0777), to be used by uid 0 or, when the
/// tests run as another user, by that one.
std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options& options);
/// True if the back end tells users apart in this process.
bool tells_users_apart();

inline fixture::fixture()
{
    ::umask(0);
    auto r = reactor::create();
    BOOST_REQUIRE_MESSAGE(r, (r ? std::string() : r.error().message()));
    shard = std::move(*r);
    fs = make_backend(pool, {});
    BOOST_REQUIRE(fs);
    me.who = credential(::geteuid(), ::getegid());
}

inline request user(std::uint32_t uid, std::uint32_t gid, std::vector<std::uint32_t> groups = {})
{
    request r;
    r.who = credential(uid, gid);
    r.who.set_groups(groups);
    return r;
}

struct listing final : directory_sink {
    explicit listing(std::size_t room = ~std::size_t(0)) : room(room) {}
    bool take(const directory_entry& e) override
    {
        if (room == 0)
            return false;
        --room;
        ++seen[std::string(e.name)];
        ids[std::string(e.name)] = e.fileid;
        last = e.cookie;
        if (e.attrs)
            attrs[std::string(e.name)] = *e.attrs;
        if (e.handle)
            handles[std::string(e.name)] = *e.handle;
        return true;
    }
    std::size_t room;
    std::uint64_t last = 0;
    std::map<std::string, int> seen;
    std::map<std::string, std::uint64_t> ids;
    std::map<std::string, attributes> attrs;
    std::map<std::string, storage::handle> handles;
};

BOOST_FIXTURE_TEST_SUITE(every_backend, fixture)

BOOST_AUTO_TEST_CASE(root_is_a_directory)
{
    const attributes a = stat(fs->root());
    BOOST_TEST(int(a.type) == int(file_type::directory));
    BOOST_TEST(a.fileid != 0u);
    BOOST_TEST(a.fsid != 0u);
    BOOST_TEST(a.mode == 0777u);
}

BOOST_AUTO_TEST_CASE(a_file_comes_back_as_written)
{
    const handle f = make_file("a", "hello, world", 0640);
    const attributes a = stat(f);
    BOOST_TEST(int(a.type) == int(file_type::regular));
    BOOST_TEST(a.mode == 0640u);
    BOOST_TEST(a.size == 12u);
    BOOST_TEST(a.links == 1u);
    BOOST_TEST(a.uid == me.who.uid);
    BOOST_TEST(a.fsid == stat(fs->root()).fsid);
    BOOST_TEST(get(me, f) == "hello, world");
    BOOST_TEST(get(me, f, 7, 3) == "wor");
    BOOST_TEST(get(me, f, 12) == "");
    BOOST_TEST(get(me, f, std::uint64_t(1) << 63) == "");
    BOOST_TEST((find(fs->root(), "a") == f));
}

BOOST_AUTO_TEST_CASE(read_tells_the_end_of_the_file)
{
    const handle f = make_file("a", "0123456789");
    std::byte out[10];
    auto all = must(fs->read(me, f, 0, out));
    BOOST_TEST(all.count == 10u);
    BOOST_TEST(all.end_of_file);
    auto part = must(fs->read(me, f, 0, std::span(out, 9)));
    BOOST_TEST(part.count == 9u);
    BOOST_TEST(!part.end_of_file);
    auto nothing = must(fs->read(me, f, 4, std::span(out, 0)));
    BOOST_TEST(nothing.count == 0u);
    BOOST_TEST(!nothing.end_of_file);
    auto after = must(fs->read(me, f, 1'000'000, out));
    BOOST_TEST(after.count == 0u);
    BOOST_TEST(after.end_of_file);
    BOOST_REQUIRE(after.attrs);
    BOOST_TEST(after.attrs->size == 10u);
}

BOOST_AUTO_TEST_CASE(write_gathers_and_leaves_holes)
{
    const handle f = make_file("a");
    const std::string parts[3] = {"abc", "", "defg"};
    std::vector<std::span<const std::byte>> pieces;
    for (const auto& p : parts)
        pieces.push_back(bytes(p));
    auto w = must(fs->write(me, f, 100'000, pieces, stability::unstable));
    BOOST_TEST(w.count == 7u);
    BOOST_TEST(int(w.committed) == int(stability::unstable));
    BOOST_REQUIRE(w.file.after);
    BOOST_TEST(w.file.after->size == 100'007u);
    BOOST_TEST(get(me, f, 99'998) == std::string(2, 0) + "abcdefg");
    BOOST_TEST(get(me, f, 0, 4) == std::string(4, 0));
    // More pieces than one gathered write takes.
    std::vector<std::span<const std::byte>> many(200, bytes(parts[0]));
    BOOST_TEST(must(fs->write(me, f, 0, many, stability::unstable)).count == 600u);
    BOOST_TEST(get(me, f, 597, 3) == "abc");
}

BOOST_AUTO_TEST_CASE(a_large_file_comes_back_as_written)
{
    const handle f = make_file("a");
    std::string big(3'000'000, 0);
    for (std::size_t i = 0; i < big.size(); ++i)
        big[i] = char(i * 2654435761u >> 13);
    put(me, f, 0, big);
    BOOST_TEST((get(me, f, 0, big.size()) == big));
    BOOST_TEST((get(me, f, 65'530, 20) == big.substr(65'530, 20)));
}

BOOST_AUTO_TEST_CASE(write_says_how_stable_it_is)
{
    const handle f = make_file("a");
    BOOST_TEST(int(must(write(me, f, 0, "x", stability::file_sync)).committed) == int(stability::file_sync));
    BOOST_TEST(int(must(write(me, f, 0, "x", stability::data_sync)).committed) >= int(stability::data_sync));
    BOOST_TEST(must(fs->commit(me, f, 0, 0)).after->size == 1u);
}

BOOST_AUTO_TEST_CASE(offsets_past_the_end_of_everything_are_refused)
{
    const handle f = make_file("a", "x");
    BOOST_TEST(fails(write(me, f, ~std::uint64_t(0) - 1, "abc")) == EFBIG);
    BOOST_TEST(fails(write(me, f, (std::uint64_t(1) << 63) - 1, "abc")) == EFBIG);
    set_attributes set;
    set.size = ~std::uint64_t(0);
    BOOST_TEST(fails(fs->setattr(me, f, set, std::nullopt)) == EFBIG);
    BOOST_TEST(stat(f).size == 1u);
}

BOOST_AUTO_TEST_CASE(data_of_what_is_no_file)
{
    std::byte out[4];
    BOOST_TEST(fails(fs->read(me, fs->root(), 0, out)) == EISDIR);
    BOOST_TEST(fails(write(me, fs->root(), 0, "x")) == EISDIR);
    const handle l = must(fs->symlink(me, fs->root(), "l", "a", {})).made.handle;
    BOOST_TEST(fails(fs->read(me, l, 0, out)) == EINVAL);
    set_attributes set;
    set.size = 1;
    BOOST_TEST(fails(fs->setattr(me, l, set, std::nullopt)) == EINVAL);
    BOOST_TEST(fails(fs->setattr(me, fs->root(), set, std::nullopt)) == EISDIR);
}

BOOST_AUTO_TEST_CASE(names_are_checked_everywhere)
{
    const handle root = fs->root();
    const handle f = make_file("f");
    struct bad {
        std::string name;
        int error;
    };
    const std::vector<bad> names = {{"", EINVAL},
                                    {"a/b", EINVAL},
                                    {"/", EINVAL},
                                    {std::string("a\0b", 3), EINVAL},
                                    {std::string(256, 'n'), ENAMETOOLONG},
                                    {std::string(70'000, 'n'), ENAMETOOLONG}};
    for (const bad& b : names) {
        BOOST_TEST_CONTEXT("a name of " << b.name.size() << " bytes")
        {
            BOOST_TEST(fails(fs->lookup(me, root, b.name)) == b.error);
            BOOST_TEST(fails(fs->create(me, root, b.name, create_mode::unchecked, {}, 0)) == b.error);
            BOOST_TEST(fails(fs->mkdir(me, root, b.name, {})) == b.error);
            BOOST_TEST(fails(fs->symlink(me, root, b.name, "x", {})) == b.error);
            BOOST_TEST(fails(fs->mknod(me, root, b.name, file_type::fifo, 0, 0, {})) == b.error);
            BOOST_TEST(fails(fs->remove(me, root, b.name)) == b.error);
            BOOST_TEST(fails(fs->rmdir(me, root, b.name)) == b.error);
            BOOST_TEST(fails(fs->rename(me, root, b.name, root, "x")) == b.error);
            BOOST_TEST(fails(fs->rename(me, root, "f", root, b.name)) == b.error);
            BOOST_TEST(fails(fs->link(me, f, root, b.name)) == b.error);
        }
    }
    const std::string longest(255, 'n');
    const handle l = make_file(longest);
    BOOST_TEST((find(root, longest) == l));
}

BOOST_AUTO_TEST_CASE(dot_and_dot_dot)
{
    const handle root = fs->root();
    const handle d = make_directory(root, "d");
    const handle e = make_directory(d, "e");
    BOOST_TEST((find(root, ".") == root));
    BOOST_TEST((find(root, "..") == root));
    BOOST_TEST((find(e, ".") == e));
    BOOST_TEST((find(e, "..") == d));
    BOOST_TEST((find(d, "..") == root));
    for (const char* name : {".", ".."}) {
        BOOST_TEST(fails(fs->create(me, d, name, create_mode::unchecked, {}, 0)) == EEXIST);
        BOOST_TEST(fails(fs->mkdir(me, d, name, {})) == EEXIST);
        BOOST_TEST(fails(fs->remove(me, d, name)) == EINVAL);
        BOOST_TEST(fails(fs->rmdir(me, d, name)) == EINVAL);
        BOOST_TEST(fails(fs->rename(me, d, name, root, "x")) == EINVAL);
        BOOST_TEST(fails(fs->rename(me, d, "e", d, name)) == EINVAL);
    }
}

BOOST_AUTO_TEST_CASE(lookup_gives_the_directory_too)
{
    const handle d = make_directory(fs->root(), "d");
    auto found = must(fs->lookup(me, fs->root(), "d"));
    BOOST_REQUIRE(found.directory);
    BOOST_TEST(found.directory->fileid == stat(fs->root()).fileid);
    BOOST_REQUIRE(found.found.attrs);
    BOOST_TEST(found.found.attrs->fileid == stat(d).fileid);
    BOOST_TEST(fails(fs->lookup(me, fs->root(), "missing")) == ENOENT);
    BOOST_TEST(fails(fs->lookup(me, make_file("f"), "x")) == ENOTDIR);
}

BOOST_AUTO_TEST_CASE(create_modes)
{
    const handle root = fs->root();
    const handle f = make_file("f", "content");
    set_attributes set;
    set.mode = 0600;
    BOOST_TEST(fails(fs->create(me, root, "f", create_mode::guarded, set, 0)) == EEXIST);
    BOOST_TEST(get(me, f) == "content");
    // An unchecked create finds the file and leaves it alone, but for a size.
    BOOST_TEST((must(fs->create(me, root, "f", create_mode::unchecked, set, 0)).made.handle == f));
    BOOST_TEST(get(me, f) == "content");
    BOOST_TEST(stat(f).mode == 0644u);
    set.size = 0;
    auto again = must(fs->create(me, root, "f", create_mode::unchecked, set, 0));
    BOOST_TEST(again.made.attrs->size == 0u);
    BOOST_TEST(get(me, f) == "");
    make_directory(root, "d");
    BOOST_TEST(fails(fs->create(me, root, "d", create_mode::unchecked, set, 0)) == EEXIST);
    must(fs->symlink(me, root, "l", "f", {}));
    BOOST_TEST(fails(fs->create(me, root, "l", create_mode::unchecked, set, 0)) == EEXIST);
    set_attributes sized;
    sized.mode = 0644;
    sized.size = 5;
    BOOST_TEST(must(fs->create(me, root, "sized", create_mode::unchecked, sized, 0)).made.attrs->size == 5u);
}

BOOST_AUTO_TEST_CASE(exclusive_create_knows_its_verifier)
{
    const handle root = fs->root();
    const std::uint64_t verifier = 0x8000000180000002;
    const handle f = must(fs->create(me, root, "f", create_mode::exclusive, {}, verifier)).made.handle;
    BOOST_TEST((must(fs->create(me, root, "f", create_mode::exclusive, {}, verifier)).made.handle == f));
    for (std::uint64_t other : {verifier + 1, verifier ^ (std::uint64_t(1) << 63),
                                verifier ^ (std::uint64_t(1) << 31), std::uint64_t(0)})
        BOOST_TEST(fails(fs->create(me, root, "f", create_mode::exclusive, {}, other)) == EEXIST);
    make_file("plain");
    BOOST_TEST(fails(fs->create(me, root, "plain", create_mode::exclusive, {}, 0)) == EEXIST);
    // Whoever made it goes on to set its attributes.
    set_attributes set;
    set.mode = 0640;
    set.atime.how = set.mtime.how = set_time::kind::server_time;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(stat(f).mode == 0640u);
    BOOST_TEST(fails(fs->create(me, root, "f", create_mode::exclusive, {}, verifier)) == EEXIST);
}

BOOST_AUTO_TEST_CASE(modes_stand_as_asked_for)
{
    // No umask in between, set-id bits included.
    set_attributes set;
    set.mode = 0666;
    BOOST_TEST(must(fs->create(me, fs->root(), "a", create_mode::guarded, set, 0)).made.attrs->mode == 0666u);
    set.mode = 01777;
    BOOST_TEST(must(fs->mkdir(me, fs->root(), "b", set)).made.attrs->mode == 01777u);
    set.mode = 02775;
    BOOST_TEST(must(fs->mkdir(me, fs->root(), "c", set)).made.attrs->mode == 02775u);
    set.mode = 06755;
    BOOST_TEST(must(fs->create(me, fs->root(), "e", create_mode::guarded, set, 0)).made.attrs->mode ==
               06755u);
}

BOOST_AUTO_TEST_CASE(setattr_sets_what_it_is_given)
{
    const handle f = make_file("f", "0123456789");
    set_attributes set;
    set.size = 4;
    auto c = must(fs->setattr(me, f, set, std::nullopt));
    BOOST_REQUIRE(c.after);
    BOOST_TEST(c.after->size == 4u);
    set.size = 6;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(get(me, f) == std::string("0123\0\0", 6));
    set_attributes times;
    times.atime.how = times.mtime.how = set_time::kind::value;
    times.atime.value = {1'000'000'000, 123'000};
    times.mtime.value = {-5, 7'000};
    must(fs->setattr(me, f, times, std::nullopt));
    attributes a = stat(f);
    BOOST_TEST((a.atime == file_time{1'000'000'000, 123'000}));
    BOOST_TEST((a.mtime == file_time{-5, 7'000}));
    times = {};
    times.mtime.how = set_time::kind::server_time;
    must(fs->setattr(me, f, times, std::nullopt));
    a = stat(f);
    BOOST_TEST(a.mtime.seconds > 1'700'000'000);
    BOOST_TEST((a.atime == file_time{1'000'000'000, 123'000}));
    set_attributes mode;
    mode.mode = 0604;
    BOOST_TEST(must(fs->setattr(me, f, mode, std::nullopt)).after->mode == 0604u);
    BOOST_TEST(must(fs->setattr(me, f, {}, std::nullopt)).after->mode == 0604u);
}

BOOST_AUTO_TEST_CASE(a_guard_must_equal_ctime)
{
    const handle f = make_file("f");
    set_attributes set;
    set.mode = 0600;
    file_time t = stat(f).ctime;
    file_time wrong = t;
    ++wrong.nanoseconds;
    BOOST_TEST((fails_with(fs->setattr(me, f, set, wrong)) == errc::not_sync));
    BOOST_TEST(stat(f).mode == 0644u);
    must(fs->setattr(me, f, set, t));
    BOOST_TEST(stat(f).mode == 0600u);
}

BOOST_AUTO_TEST_CASE(symbolic_links_are_data)
{
    const handle root = fs->root();
    auto l = must(fs->symlink(me, root, "l", "/etc/passwd", {}));
    BOOST_TEST(int(l.made.attrs->type) == int(file_type::symlink));
    BOOST_TEST(l.made.attrs->size == 11u);
    BOOST_TEST(must(fs->readlink(me, l.made.handle)) == "/etc/passwd");
    BOOST_TEST(int(must(fs->lookup(me, root, "l")).found.attrs->type) == int(file_type::symlink));
    BOOST_TEST(fails(fs->readlink(me, root)) == EINVAL);
    BOOST_TEST(fails(fs->symlink(me, root, "l", "x", {})) == EEXIST);
    BOOST_TEST(fails(fs->symlink(me, root, "m", "", {})) == EINVAL);
    BOOST_TEST(fails(fs->symlink(me, root, "m", std::string(5000, 'x'), {})) == ENAMETOOLONG);
    // A link to a directory is no directory.
    make_directory(root, "d");
    const handle to_d = must(fs->symlink(me, root, "to_d", "d", {})).made.handle;
    BOOST_TEST(fails(fs->lookup(me, to_d, "x")) == ENOTDIR);
    BOOST_TEST(fails(fs->create(me, to_d, "x", create_mode::unchecked, {}, 0)) == ENOTDIR);
    must(fs->remove(me, root, "to_d"));
}

BOOST_AUTO_TEST_CASE(special_files)
{
    set_attributes set;
    set.mode = 0640;
    auto p = must(fs->mknod(me, fs->root(), "p", file_type::fifo, 0, 0, set));
    BOOST_TEST(int(p.made.attrs->type) == int(file_type::fifo));
    BOOST_TEST(p.made.attrs->mode == 0640u);
    auto s = must(fs->mknod(me, fs->root(), "s", file_type::socket, 0, 0, set));
    BOOST_TEST(int(s.made.attrs->type) == int(file_type::socket));
    std::byte out[1];
    BOOST_TEST(fails(fs->read(me, p.made.handle, 0, out)) == EINVAL); // and does not wait for a writer
    BOOST_TEST(fails(fs->mknod(me, fs->root(), "f", file_type::regular, 0, 0, set)) == EINVAL);
    set.mode = 0600;
    BOOST_TEST(must(fs->setattr(me, p.made.handle, set, std::nullopt)).after->mode == 0600u);
}

BOOST_AUTO_TEST_CASE(removed_files_are_stale)
{
    const handle root = fs->root();
    const handle f = make_file("f", "x");
    BOOST_TEST(get(me, f) == "x");
    auto c = must(fs->remove(me, root, "f"));
    BOOST_REQUIRE(c.after);
    BOOST_TEST(fails(fs->getattr(me, f)) == ESTALE);
    std::byte out[1];
    BOOST_TEST(fails(fs->read(me, f, 0, out)) == ESTALE);
    BOOST_TEST(fails(write(me, f, 0, "y")) == ESTALE);
    BOOST_TEST(fails(fs->setattr(me, f, {}, std::nullopt)) == ESTALE);
    BOOST_TEST(fails(fs->commit(me, f, 0, 0)) == ESTALE);
    BOOST_TEST(fails(fs->link(me, f, root, "again")) == ESTALE);
    BOOST_TEST(fails(fs->remove(me, root, "f")) == ENOENT);
    const handle d = make_directory(root, "d");
    must(fs->rmdir(me, root, "d"));
    BOOST_TEST(fails(fs->getattr(me, d)) == ESTALE);
    BOOST_TEST(fails(fs->lookup(me, d, "x")) == ESTALE);
    BOOST_TEST(fails(fs->create(me, d, "x", create_mode::unchecked, {}, 0)) == ESTALE);
    listing l;
    BOOST_TEST(fails(fs->readdir(me, d, 0, 0, false, l)) == ESTALE);
}

BOOST_AUTO_TEST_CASE(rmdir_takes_empty_directories_only)
{
    const handle root = fs->root();
    const handle d = make_directory(root, "d");
    make_file(me, d, "f");
    BOOST_TEST(fails(fs->rmdir(me, root, "d")) == ENOTEMPTY);
    BOOST_TEST(fails(fs->remove(me, root, "d")) == EISDIR);
    BOOST_TEST(fails(fs->rmdir(me, d, "f")) == ENOTDIR);
    must(fs->remove(me, d, "f"));
    must(fs->rmdir(me, root, "d"));
    BOOST_TEST(fails(fs->lookup(me, root, "d")) == ENOENT);
}

BOOST_AUTO_TEST_CASE(rename_keeps_handles)
{
    const handle root = fs->root();
    const handle a = make_directory(root, "a");
    const handle b = make_directory(root, "b");
    const handle f = make_file(me, a, "f", "data");
    auto moved = must(fs->rename(me, a, "f", b, "g"));
    BOOST_REQUIRE(moved.from.after);
    BOOST_REQUIRE(moved.to.after);
    BOOST_TEST(moved.to.after->fileid == stat(b).fileid);
    BOOST_TEST((find(b, "g") == f));
    BOOST_TEST(get(me, f) == "data");
    BOOST_TEST(fails(fs->lookup(me, a, "f")) == ENOENT);
    // A directory moves with all beneath it.
    must(fs->rename(me, root, "b", a, "c"));
    BOOST_TEST((find(a, "c") == b));
    BOOST_TEST((find(b, "..") == a));
    BOOST_TEST(get(me, f) == "data");
    BOOST_TEST(fails(fs->rename(me, root, "a", b, "loop")) == EINVAL);
    BOOST_TEST(fails(fs->rename(me, root, "missing", root, "x")) == ENOENT);
}

BOOST_AUTO_TEST_CASE(rename_over)
{
    const handle root = fs->root();
    const handle f = make_file("f", "new");
    const handle g = make_file("g", "old");
    must(fs->rename(me, root, "f", root, "g"));
    BOOST_TEST((find(root, "g") == f));
    BOOST_TEST(fails(fs->getattr(me, g)) == ESTALE);
    const handle d = make_directory(root, "d");
    const handle e = make_directory(root, "e");
    make_file(me, e, "x");
    BOOST_TEST(fails(fs->rename(me, root, "g", root, "d")) == EISDIR);
    BOOST_TEST(fails(fs->rename(me, root, "d", root, "g")) == ENOTDIR);
    BOOST_TEST(fails(fs->rename(me, root, "d", root, "e")) == ENOTEMPTY);
    must(fs->rename(me, root, "e", root, "d"));
    BOOST_TEST((find(root, "d") == e));
    BOOST_TEST(fails(fs->getattr(me, d)) == ESTALE);
    // Onto itself, by the same or another name of the same file: nothing happens.
    must(fs->rename(me, root, "g", root, "g"));
    must(fs->link(me, f, root, "h"));
    must(fs->rename(me, root, "g", root, "h"));
    BOOST_TEST(stat(f).links == 2u);
}

BOOST_AUTO_TEST_CASE(links_are_counted)
{
    const handle root = fs->root();
    const handle f = make_file("f", "x");
    auto l = must(fs->link(me, f, root, "g"));
    BOOST_REQUIRE(l.file);
    BOOST_TEST(l.file->links == 2u);
    BOOST_TEST((find(root, "g") == f));
    BOOST_TEST(fails(fs->link(me, f, root, "g")) == EEXIST);
    must(fs->remove(me, root, "f"));
    BOOST_TEST(stat(f).links == 1u);
    BOOST_TEST(get(me, f) == "x");
    const handle d = make_directory(root, "d");
    BOOST_TEST(fails(fs->link(me, d, root, "d2")) == EPERM);
    const std::uint32_t before = stat(d).links;
    make_directory(d, "sub");
    BOOST_TEST(stat(d).links == before + 1);
}

BOOST_AUTO_TEST_CASE(listing_names_all_once)
{
    const handle d = make_directory(fs->root(), "d");
    const handle sub = make_directory(d, "sub");
    for (int i = 0; i < 300; ++i)
        make_file(me, d, "file" + std::to_string(i));
    for (bool plus : {false, true}) {
        for (std::size_t room : {1u, 7u, 100u, 1000u}) {
            listing all(0);
            std::uint64_t verifier = 0;
            bool end = false;
            for (int calls = 0; !end && calls < 1000; ++calls) {
                all.room = room;
                auto r = must(fs->readdir(me, d, all.last, verifier, plus, all));
                verifier = r.verifier;
                end = r.end;
                BOOST_REQUIRE(r.directory);
            }
            BOOST_TEST(end);
            BOOST_TEST(all.seen.size() == 303u);
            for (const auto& [name, times] : all.seen)
                BOOST_TEST(times == 1, name);
            BOOST_TEST(all.ids["."] == stat(d).fileid);
            BOOST_TEST(all.ids[".."] == stat(fs->root()).fileid);
            if (plus) {
                BOOST_TEST((all.handles["sub"] == sub));
                BOOST_TEST(all.attrs["sub"].fileid == all.ids["sub"]);
                BOOST_TEST((all.handles["file7"] == find(d, "file7")));
                BOOST_TEST(all.attrs.size() >= 301u);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(listing_of_the_root_shows_nothing_above)
{
    listing l;
    auto r = must(fs->readdir(me, fs->root(), 0, 0, true, l));
    BOOST_TEST(r.end);
    BOOST_TEST(l.ids["."] == stat(fs->root()).fileid);
    BOOST_TEST(l.ids[".."] == stat(fs->root()).fileid);
    BOOST_REQUIRE(l.handles.contains(".."));
    BOOST_TEST((l.handles[".."] == fs->root()));
    BOOST_TEST(l.attrs[".."].fileid == stat(fs->root()).fileid);
}

BOOST_AUTO_TEST_CASE(cookies_survive_changes)
{
    const handle d = make_directory(fs->root(), "d");
    for (int i = 0; i < 100; ++i)
        make_file(me, d, "f" + std::to_string(i));
    listing all(40);
    auto first = must(fs->readdir(me, d, 0, 0, false, all));
    BOOST_TEST(!first.end);
    // What was listed goes away, as rm -r does: nothing that stays may be skipped or come twice.
    std::size_t removed = 0;
    for (const auto& [name, times] : all.seen) {
        if (name[0] == 'f') {
            must(fs->remove(me, d, name));
            ++removed;
        }
    }
    all.room = 1000;
    auto rest = must(fs->readdir(me, d, all.last, first.verifier, false, all));
    BOOST_TEST(rest.end);
    BOOST_TEST(all.seen.size() == 102u);
    for (const auto& [name, times] : all.seen)
        BOOST_TEST(times == 1, name);
    BOOST_TEST(removed >= 38u);
}

BOOST_AUTO_TEST_CASE(a_cookie_needs_its_verifier)
{
    const handle d = make_directory(fs->root(), "d");
    for (int i = 0; i < 5; ++i)
        make_file(me, d, "f" + std::to_string(i));
    listing l(2);
    auto r = must(fs->readdir(me, d, 0, 0, false, l));
    BOOST_TEST(r.verifier != 0u);
    l.room = 100;
    BOOST_TEST((fails_with(fs->readdir(me, d, l.last, r.verifier + 1, false, l)) == errc::bad_cookie));
    BOOST_TEST((fails_with(fs->readdir(me, d, l.last, 0, false, l)) == errc::bad_cookie));
    BOOST_TEST(must(fs->readdir(me, d, l.last, r.verifier, false, l)).end);
    listing none(0);
    BOOST_TEST((fails_with(fs->readdir(me, d, 0, 0, false, none)) == errc::too_small));
    BOOST_TEST(fails(fs->readdir(me, make_file("f"), 0, 0, false, l)) == ENOTDIR);
    // A cookie made up by a client may give anything but a crash.
    for (std::uint64_t cookie : {~std::uint64_t(0), std::uint64_t(1) << 63, std::uint64_t(12345)}) {
        listing any;
        (void)run(fs->readdir(me, d, cookie, r.verifier, true, any));
    }
}

BOOST_AUTO_TEST_CASE(an_empty_directory_ends_at_once)
{
    const handle d = make_directory(fs->root(), "d");
    listing l;
    auto r = must(fs->readdir(me, d, 0, 0, true, l));
    BOOST_TEST(r.end);
    BOOST_TEST(l.seen.size() == 2u);
    // Asked again behind the last entry, with a full sink before.
    listing two(2);
    r = must(fs->readdir(me, d, 0, 0, false, two));
    if (!r.end) {
        two.room = 9;
        BOOST_TEST(must(fs->readdir(me, d, two.last, r.verifier, false, two)).end);
        BOOST_TEST(two.seen.size() == 2u);
    }
}

BOOST_AUTO_TEST_CASE(a_file_system_tells_its_size)
{
    auto s = must(fs->statfs(me, fs->root()));
    BOOST_TEST(s.total_bytes > 0u);
    BOOST_TEST(s.available_bytes <= s.free_bytes);
    BOOST_TEST(s.free_bytes <= s.total_bytes);
    BOOST_TEST(fs->info().max_name == 255u);
    BOOST_TEST(fs->info().max_file_size > 0xffffffffu);
}

BOOST_AUTO_TEST_CASE(handles_made_up_are_refused)
{
    const auto refused = [&](const handle& h) {
        auto r = run(fs->getattr(me, h));
        BOOST_REQUIRE(!r);
        BOOST_TEST((r.error() == errc::bad_handle || r.error().errno_value() == ESTALE), r.error().message());
    };
    refused(handle());
    const auto root = fs->root();
    const auto good = root.bytes();
    for (std::size_t n = 0; n < good.size(); ++n)
        refused(handle(good.first(n)));
    std::vector<std::byte> longer(good.begin(), good.end());
    longer.resize(64, std::byte(0xff));
    refused(handle(longer));
    for (std::size_t i = 0; i < good.size(); ++i) {
        std::vector<std::byte> changed(good.begin(), good.end());
        changed[i] ^= std::byte(0xff);
        refused(handle(changed));
    }
}

BOOST_AUTO_TEST_CASE(a_read_only_export_refuses_changes)
{
    make_file("f", "x");
    auto ro = make_backend(pool, {.read_only = true});
    const handle root = ro->root();
    BOOST_TEST(fails(ro->create(me, root, "new", create_mode::unchecked, {}, 0)) == EROFS);
    BOOST_TEST(fails(ro->mkdir(me, root, "new", {})) == EROFS);
    BOOST_TEST(fails(ro->symlink(me, root, "new", "x", {})) == EROFS);
    BOOST_TEST(fails(ro->mknod(me, root, "new", file_type::fifo, 0, 0, {})) == EROFS);
    BOOST_TEST(fails(ro->setattr(me, root, {}, std::nullopt)) == EROFS);
    BOOST_TEST(fails(ro->remove(me, root, "f")) == EROFS);
    BOOST_TEST(fails(ro->rmdir(me, root, "f")) == EROFS);
    BOOST_TEST(fails(ro->rename(me, root, "f", root, "g")) == EROFS);
    BOOST_TEST(fails(ro->link(me, root, root, "g")) == EROFS);
    const std::span<const std::byte> piece = bytes("x");
    BOOST_TEST(fails(ro->write(me, root, 0, std::span(&piece, 1), stability::unstable)) == EROFS);
    BOOST_TEST(must(ro->access(me, root, R_OK | W_OK | X_OK)) == unsigned(R_OK | X_OK));
}

// What follows needs a back end that tells users apart: memfs always, posixfs as root.

BOOST_AUTO_TEST_CASE(permissions_bind)
{
    if (!tells_users_apart())
        return;
    const handle root = fs->root();
    const request alice = user(1000, 1000);
    const request bob = user(1001, 1001);
    const request in_group = user(1002, 1002, {7, 1000, 99});
    const handle mine = make_file("root_only", "secret", 0600);
    std::byte out[8];
    BOOST_TEST(fails(fs->read(alice, mine, 0, out)) == EACCES);
    BOOST_TEST(fails(write(alice, mine, 0, "x")) == EACCES);
    BOOST_TEST(must(fs->access(alice, mine, R_OK | W_OK | X_OK)) == 0u);
    BOOST_TEST(get(me, mine) == "secret");
    // ... also when the right descriptor is open already, for somebody else.
    BOOST_TEST(fails(fs->read(alice, mine, 0, out)) == EACCES);

    const handle f = make_file(alice, root, "f", "alice", 0640);
    BOOST_TEST(stat(f).uid == 1000u);
    BOOST_TEST(stat(f).gid == 1000u);
    BOOST_TEST(get(in_group, f) == "alice");
    BOOST_TEST(fails(write(in_group, f, 0, "x")) == EACCES);
    BOOST_TEST(fails(fs->read(bob, f, 0, out)) == EACCES);
    BOOST_TEST(must(fs->access(in_group, f, R_OK | W_OK)) == unsigned(R_OK));
    BOOST_TEST(must(fs->access(alice, f, R_OK | W_OK | X_OK)) == unsigned(R_OK | W_OK));
    // A change of mode binds at once, descriptors or not.
    set_attributes set;
    set.mode = 0600;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(fails(fs->read(in_group, f, 0, out)) == EACCES);
    set.mode = 0666;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(must(write(bob, f, 0, "B")).count == 1u);
    set.mode = 0644;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(fails(write(bob, f, 0, "B")) == EACCES);
    BOOST_TEST(get(bob, f) == "Blice");
}

BOOST_AUTO_TEST_CASE(directories_bind)
{
    if (!tells_users_apart())
        return;
    const request alice = user(1000, 1000);
    const handle d = make_directory(fs->root(), "d", 0700);
    make_file(me, d, "f", "x", 0666);
    listing l;
    BOOST_TEST(fails(fs->lookup(alice, d, "f")) == EACCES);
    BOOST_TEST(fails(fs->readdir(alice, d, 0, 0, true, l)) == EACCES);
    set_attributes set;
    set.mode = 0755;
    must(fs->setattr(me, d, set, std::nullopt));
    must(fs->lookup(alice, d, "f"));
    must(fs->readdir(alice, d, 0, 0, true, l));
    BOOST_TEST(fails(fs->create(alice, d, "g", create_mode::unchecked, {}, 0)) == EACCES);
    BOOST_TEST(fails(fs->mkdir(alice, d, "g", {})) == EACCES);
    BOOST_TEST(fails(fs->symlink(alice, d, "g", "x", {})) == EACCES);
    BOOST_TEST(fails(fs->remove(alice, d, "f")) == EACCES);
    BOOST_TEST(fails(fs->rename(alice, d, "f", fs->root(), "f")) == EACCES);
    set.mode = 0711;
    must(fs->setattr(me, d, set, std::nullopt));
    must(fs->lookup(alice, d, "f"));
    BOOST_TEST(fails(fs->readdir(alice, d, 0, 0, true, l)) == EACCES);
    BOOST_TEST(fails(fs->lookup(alice, make_directory(d, "deep", 0700), "..")) == EACCES);
    // Others' files stay in a sticky directory.
    const handle sticky = make_directory(fs->root(), "sticky", 01777);
    make_file(me, sticky, "f", "", 0666);
    const int refused = fails(fs->remove(alice, sticky, "f"));
    BOOST_TEST((refused == EPERM || refused == EACCES));
}

BOOST_AUTO_TEST_CASE(only_the_owner_changes_attributes)
{
    if (!tells_users_apart())
        return;
    const request alice = user(1000, 1000, {50});
    const request bob = user(1001, 1001);
    const handle f = make_file(alice, fs->root(), "f", "data", 0666);
    set_attributes set;
    set.mode = 0777;
    BOOST_TEST(fails(fs->setattr(bob, f, set, std::nullopt)) == EPERM);
    set = {};
    set.uid = 1001;
    BOOST_TEST(fails(fs->setattr(alice, f, set, std::nullopt)) == EPERM);
    set = {};
    set.gid = 51;
    BOOST_TEST(fails(fs->setattr(alice, f, set, std::nullopt)) == EPERM);
    set.gid = 50;
    BOOST_TEST(must(fs->setattr(alice, f, set, std::nullopt)).after->gid == 50u);
    // Times: anyone who may write sets both to now, only the owner to a value.
    set = {};
    set.atime.how = set.mtime.how = set_time::kind::server_time;
    must(fs->setattr(bob, f, set, std::nullopt));
    set.mtime.how = set_time::kind::value;
    BOOST_TEST(fails(fs->setattr(bob, f, set, std::nullopt)) == EPERM);
    set = {};
    set.size = 2;
    must(fs->setattr(bob, f, set, std::nullopt));
    set.mode = std::nullopt;
    set.uid = 5;
    set.size.reset();
    BOOST_TEST(must(fs->setattr(me, f, set, std::nullopt)).after->uid == 5u);
    // 2^32-1 means "nobody was named" to the system and must not reach it.
    set.uid = 0xffffffff;
    BOOST_TEST(fails(fs->setattr(me, f, set, std::nullopt)) == EINVAL);
}

BOOST_AUTO_TEST_CASE(the_owner_may_always_read_and_write)
{
    if (!tells_users_apart())
        return;
    const request alice = user(1000, 1000);
    const handle f = make_file(alice, fs->root(), "f", {}, 0444);
    put(alice, f, 0, "written all the same");
    BOOST_TEST(fails(write(user(1001, 1000), f, 0, "x")) == EACCES);
    set_attributes set;
    set.mode = 0;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(get(alice, f) == "written all the same");
    set = {};
    set.size = 7;
    BOOST_TEST(must(fs->setattr(alice, f, set, std::nullopt)).after->size == 7u);
    // ACCESS tells the truth of the mode bits.
    BOOST_TEST(must(fs->access(alice, f, R_OK | W_OK)) == 0u);
}

BOOST_AUTO_TEST_CASE(what_may_be_executed_may_be_read)
{
    if (!tells_users_apart())
        return;
    const handle f = make_file(me, fs->root(), "f", "program", 0711);
    BOOST_TEST(get(user(1000, 1000), f) == "program");
    BOOST_TEST(fails(write(user(1000, 1000), f, 0, "x")) == EACCES);
    BOOST_TEST(must(fs->access(user(1000, 1000), f, R_OK | X_OK)) == unsigned(X_OK));
}

BOOST_AUTO_TEST_CASE(set_id_bits)
{
    if (!tells_users_apart())
        return;
    const request alice = user(1000, 1000);
    const request bob = user(1001, 1001);
    // New files in a set-group-id directory take its group, new directories the bit as well.
    const handle d = make_directory(fs->root(), "d", 0777);
    set_attributes set;
    set.gid = 77;
    must(fs->setattr(me, d, set, std::nullopt));
    set = {};
    set.mode = 02777;
    must(fs->setattr(me, d, set, std::nullopt));
    BOOST_TEST(stat(make_file(alice, d, "f")).gid == 77u);
    set.mode = 0755;
    auto sub = must(fs->mkdir(alice, d, "sub", set));
    BOOST_TEST(sub.made.attrs->gid == 77u);
    BOOST_TEST(sub.made.attrs->mode == 02755u);
    // A write by another takes the set-user-id bit away.
    const handle f = make_file(alice, fs->root(), "suid", "x", 0666);
    set.mode = 04777;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(stat(f).mode == 04777u);
    put(bob, f, 0, "y");
    BOOST_TEST(stat(f).mode == 0777u);
}

BOOST_AUTO_TEST_CASE(creating_for_others)
{
    if (!tells_users_apart())
        return;
    const request alice = user(1000, 1000);
    set_attributes set;
    set.mode = 0600;
    set.uid = 4;
    set.gid = 5;
    auto by_root = must(fs->create(me, fs->root(), "a", create_mode::guarded, set, 0));
    BOOST_TEST(by_root.made.attrs->uid == 4u);
    BOOST_TEST(by_root.made.attrs->gid == 5u);
    set.gid.reset();
    auto by_alice = must(fs->mkdir(alice, fs->root(), "b", set));
    BOOST_TEST(by_alice.made.attrs->uid == 1000u);
    set.gid = 5;
    BOOST_TEST(fails(fs->create(alice, fs->root(), "c", create_mode::guarded, set, 0)) == EPERM);
    BOOST_TEST(fails(fs->lookup(me, fs->root(), "c")) == ENOENT);
    const int refused = fails(fs->mknod(alice, fs->root(), "dev", file_type::character_device, 1, 3, {}));
    BOOST_TEST((refused == EPERM || refused == EACCES));
}

BOOST_AUTO_TEST_CASE(impossible_users_get_nothing)
{
    if (!tells_users_apart())
        return;
    const handle f = make_file(me, fs->root(), "f", "secret", 0600);
    std::byte out[8];
    set_attributes set;
    set.mode = 0777;
    for (const request& r : {user(0xffffffff, 0), user(0xffffffff, 0xffffffff), user(1000, 0xffffffff)}) {
        const int read = fails(fs->read(r, f, 0, out));
        BOOST_TEST((read == EPERM || read == EACCES));
        BOOST_TEST(fails(write(r, f, 0, "x")) != 0);
        BOOST_TEST(fails(fs->setattr(r, f, set, std::nullopt)) == EPERM);
    }
    BOOST_TEST(stat(f).mode == 0600u);
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace suite
