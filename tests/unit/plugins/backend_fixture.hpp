// SPDX-License-Identifier: Apache-2.0
// A back end under test, and those who use it.
#pragma once

#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <cerrno>
#include <cstdint>
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
    bool async = false;
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

/// Walks with the seeds 0 to `fixed` - 1 and with `fresh` that nobody has seen, each over a back end from make_backend(). In backend_suites.cpp.
void walk_beside_system_calls(std::uint64_t fixed, std::uint64_t fresh);

} // namespace suite
